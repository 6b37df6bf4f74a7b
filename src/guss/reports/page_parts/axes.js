// Scales and ticks of curves and animations.

/** Converts values to pixels, and back with `invert`; `log`: a logarithmic scale. */
function scaleOf([low, high], [start, stop], log = false) {
  const to = log ? Math.log10 : (value) => value;
  const from = log ? (value) => 10 ** value : (value) => value;
  const a = to(low), b = to(high);
  const scale = (value) => start + ((to(value) - a) / (b - a)) * (stop - start);
  scale.invert = (pixel) => from(a + ((pixel - start) / (stop - start)) * (b - a));
  return scale;
}

/** Round numbers between low and high, about `count` of them. */
function ticksOf(low, high, count, { log = false, whole = false } = {}) {
  if (log && high / low >= 10) return decades(low, high, count);
  const rough = (high - low) / Math.max(count, 1);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const circle = [45, 90, 180].find((degrees) => high - low === 360 && degrees >= rough * 0.999);
  let step = circle ?? unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const first = Math.ceil(low / step - 1e-9);
  const ticks = [];
  for (let i = first; i * step <= high + 1e-9 * step; i += 1) ticks.push(i * step);
  return ticks;
}

function decades(low, high, count) {
  const powers = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power += 1) powers.push(power);
  const factors = powers.length * 3 <= count ? [1, 2, 5] : [1];
  const all = [powers[0] - 1, ...powers].flatMap((power) => factors.map((factor) => factor * 10 ** power));
  return all.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
}

/** Labels of ticks, with the digits that their spacing needs. */
function tickLabels(ticks) {
  const gaps = ticks.slice(1).map((tick, i) => tick - ticks[i]);
  const step = gaps.length ? Math.min(...gaps) : Math.abs(ticks[0] ?? 1) || 1;
  const digits = Math.min(6, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return ticks.map((tick) => fixed(tick, digits));
}

/** A line of [x, y] pixels as a path; null interrupts it. */
function pathOf(points) {
  let pen = "M";
  return points.map((point) => {
    if (point === null) {
      pen = "M";
      return "";
    }
    const piece = `${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    pen = "L";
    return piece;
  }).join("");
}
