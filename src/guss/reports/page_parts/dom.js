// Elements, and how numbers are written. Text goes in as text: nothing from the payload is ever read as markup.

const MISSING = "–";

/** An element. Attributes are set as such, functions become listeners; children are elements or text. */
function make(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
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

/** A colour as the payload gives it: #rgb or #rrggbb, grey for anything else. */
function colourOf(text) {
  return /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.test(text ?? "") ? text : "#777777";
}

const DASHES = { "--": "7 4", "-.": "9 3 2 3", ":": "2 3" };

/** A piece of a method's line, for legends. */
function swatch(style) {
  const look = { class: "stroked", style: `--c:${style.color}`, "stroke-width": 2.5, "stroke-dasharray": DASHES[style.dash] };
  const line = makeSvg("line", { x1: 1, y1: 6, x2: 29, y2: 6, ...look });
  return makeSvg("svg", { class: "swatch", viewBox: "0 0 30 12", width: 30, height: 12, "aria-hidden": "true" }, line);
}

/** How the methods of an environment look: label, colour and dash by name. */
function stylesOf(rows) {
  const styles = new Map(rows.map((row) => [row.method, { label: row.label, color: colourOf(row.color), dash: row.dash }]));
  return (method) => styles.get(method) ?? { label: method, color: "#777777", dash: "-" };
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Sentences with real minus signs. */
const prose = (text) => String(text).replace(/(^|[\s(\[,;:±])-(?=[\d.])/g, "$1−");

const minus = (text) => text.replace("-", "−");

/** Two digits after the point, fewer for large numbers, one more for small ones: 0.004 % unsafe is not 0. */
function digitsOf(value) {
  const size = Math.abs(value);
  return size >= 1000 ? 0 : size >= 100 ? 1 : size > 0 && size < 0.05 ? 3 : 2;
}

function fixed(value, digits = digitsOf(value)) {
  if (!isNumber(value)) return MISSING;
  const text = value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return minus(/^-[0.]+$/.test(text) ? text.slice(1) : text);
}

/** mean ± half-width, both with the mean's digits. */
const plusMinus = (mean, half) => (isNumber(half) ? `${fixed(mean)} ± ${fixed(half, digitsOf(mean))}` : fixed(mean));

/** Three digits that count. */
const short = (value) => (isNumber(value) ? minus(value.toLocaleString("en-US", { maximumSignificantDigits: 3 })) : MISSING);

function pValue(value) {
  return isNumber(value) ? (value < 0.001 ? "< 0.001" : value.toFixed(3)) : MISSING;
}
