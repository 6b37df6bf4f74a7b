// Creates elements and formats numbers. Text from the payload is inserted as text, never as markup.

const MISSING = "–";

/** An element. Attributes that are functions become listeners; children are elements or text. */
function make(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function makeSvg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A colour of the payload if it is #rgb or #rrggbb, else grey. */
function colourOf(text) {
  return /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.test(text ?? "") ? text : "#777777";
}

const DASHES = { "--": "7 4", "-.": "9 3 2 3", ":": "2 3" };

/** A sample of a method's line, for legends. */
function swatch(style) {
  const look = { class: "stroked", style: `--c:${style.color}`, "stroke-width": 2.5, "stroke-dasharray": DASHES[style.dash] };
  const line = makeSvg("line", { x1: 1, y1: 6, x2: 29, y2: 6, ...look });
  return makeSvg("svg", { class: "swatch", viewBox: "0 0 30 12", width: 30, height: 12, "aria-hidden": "true" }, line);
}

/** Styles of the methods of an environment: label, colour and dash by name. */
function stylesOf(rows) {
  const styles = new Map(rows.map((row) => [row.method, { label: row.label, color: colourOf(row.color), dash: row.dash }]));
  return (method) => styles.get(method) ?? { label: method, color: "#777777", dash: "-" };
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** A text with minus signs instead of hyphens before numbers. */
const prose = (text) => String(text).replace(/(^|[\s(\[,;:±])-(?=[\d.])/g, "$1−");

const minus = (text) => text.replace("-", "−");

/** Decimal places: two, fewer for large numbers, three for small ones, so that 0.004 % unsafe is not shown as 0. */
function digitsOf(value) {
  const size = Math.abs(value);
  return size >= 1000 ? 0 : size >= 100 ? 1 : size > 0 && size < 0.05 ? 3 : 2;
}

function fixed(value, digits = digitsOf(value)) {
  if (!isNumber(value)) return MISSING;
  const text = value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return minus(/^-[0.]+$/.test(text) ? text.slice(1) : text);
}

/** mean ± half-width, with the decimal places of the mean. */
const plusMinus = (mean, half) => (isNumber(half) ? `${fixed(mean)} ± ${fixed(half, digitsOf(mean))}` : fixed(mean));

/** Three significant digits. */
const THREE = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
const short = (value) => (isNumber(value) ? minus(value.toLocaleString("en-US", THREE)) : MISSING);

function pValue(value) {
  return isNumber(value) ? (value < 0.001 ? "< 0.001" : value.toFixed(3)) : MISSING;
}
