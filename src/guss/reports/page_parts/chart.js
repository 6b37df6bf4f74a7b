// One panel of curves: lines with bands, values under the pointer, zoom by dragging.

const FEW = 6; // pixels; shorter drags are taps
const TALL = 24; // pixels; a flatter drag selects only a range of x
let charts = 0;

class Chart {
  constructor(curve, styleOf, hidden, envLabel) {
    Object.assign(this, { curve, styleOf, hidden, zoom: null, drag: null, at: null, tap: null });
    this.clip = `clip-${(charts += 1)}`;
    const about = `${curve.title} on ${envLabel}: ${curve.ylabel} over episodes, a line for each method.`;
    this.svg = makeSvg("svg", {
      class: "chart", role: "img", tabindex: 0, "aria-label": `${about} Arrow keys read values, plus and minus zoom, escape resets.`,
      pointerdown: (event) => this.press(event), pointermove: (event) => this.move(event),
      pointerup: (event) => this.release(event), pointercancel: () => this.letGo(),
      pointerleave: (event) => event.pointerType === "touch" || this.read(null),
      keydown: (event) => this.key(event), blur: () => this.read(null),
    });
    this.readout = make("div", { class: "readout", role: "status", hidden: true });
    this.reset = make("button", { type: "button", class: "small reset", disabled: true, click: () => this.zoomTo(null) }, "reset zoom");
    this.plot = make("div", { class: "plot" }, this.svg, this.readout);
    this.box = make("figure", { class: "curve" }, make("figcaption", {}, make("span", {}, curve.title), this.reset), this.plot);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  lines() {
    return this.curve.lines.filter((line) => !this.hidden.has(line.method) && line.x.length);
  }

  /** The axis limits: the range of all visible lines, or the zoomed range. */
  ranges() {
    const lines = this.lines().length ? this.lines() : this.curve.lines;
    const ends = lines.flatMap((line) => [line.x[0], line.x[line.x.length - 1]]);
    let x = this.zoom?.x ?? (ends.length ? [Math.min(...ends), Math.max(...ends)] : [1, 2]);
    if (x[0] === x[1]) x = [x[0] * 0.9, x[1] * 1.1 + 0.1];
    if (this.zoom?.y) return { x, y: this.zoom.y };
    const values = this.zoom ? [] : [this.curve.level?.value, this.curve.random?.value];
    for (const line of lines) {
      line.x.forEach((at, i) => at >= x[0] && at <= x[1] && values.push(line.low?.[i], line.high?.[i], line.mean[i]));
    }
    const known = values.filter(isNumber);
    let [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
    const edge = 0.04 * (high - low) || Math.abs(high) * 0.05 || 0.5;
    const floor = this.curve.floor;
    low = isNumber(floor) && low - edge <= floor ? floor : low - edge;
    return { x, y: [low, high + edge] };
  }

  draw() {
    const width = Math.max(this.plot.clientWidth, 240), height = width < 480 ? 250 : 320;
    const { x, y } = this.ranges();
    const yTicks = ticksOf(y[0], y[1], 6), yLabels = tickLabels(yTicks);
    const left = 26 + 6.4 * Math.max(3, ...yLabels.map((label) => label.length));
    this.area = { left, right: width - 10, top: 8, bottom: height - 38 };
    const { right, top, bottom } = this.area;
    this.x = scaleOf(x, [left, right], this.curve.logx);
    this.y = scaleOf(y, [bottom, top]);
    const xTicks = ticksOf(x[0], x[1], width / 80, { log: this.curve.logx, whole: x[1] - x[0] > 3 });
    const xLabels = tickLabels(xTicks), named = { "text-anchor": "middle", class: "name" };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(
      makeSvg("clipPath", { id: this.clip }, makeSvg("rect", { x: left, y: top, width: right - left, height: bottom - top })),
      makeSvg("g", { class: "axis axis-y" }, yTicks.map((tick, i) => [
        makeSvg("line", { x1: left, x2: right, y1: this.y(tick), y2: this.y(tick), class: "grid" }),
        makeSvg("text", { x: left - 6, y: this.y(tick) + 4, "text-anchor": "end" }, yLabels[i]),
      ])),
      makeSvg("g", { class: "axis axis-x" }, xTicks.map((tick, i) => [
        makeSvg("line", { x1: this.x(tick), x2: this.x(tick), y1: bottom, y2: bottom + 4 }),
        makeSvg("text", { x: this.x(tick), y: bottom + 16, "text-anchor": "middle" }, xLabels[i]),
      ]), makeSvg("line", { x1: left, x2: right, y1: bottom, y2: bottom })),
      makeSvg("text", { x: (left + right) / 2, y: height - 4, ...named }, `episode${this.curve.logx ? " (logarithmic)" : ""}`),
      makeSvg("text", { x: -(top + bottom) / 2, y: 12, transform: "rotate(-90)", ...named }, this.curve.ylabel),
      makeSvg("g", { "clip-path": `url(#${this.clip})`, class: "lines" },
        this.lines().map((line) => this.band(line)), this.lines().map((line) => this.mean(line)),
        this.across(this.curve.level, "level"),
        this.across(this.curve.random && { label: "Random", ...this.curve.random }, "random")),
      (this.marks = makeSvg("g", { class: "marks" })),
    );
    this.read(this.at);
  }

  mean(line) {
    const style = this.styleOf(line.method);
    const points = line.x.map((at, i) => (isNumber(line.mean[i]) ? [this.x(at), this.y(line.mean[i])] : null));
    const look = { class: "mean stroked", style: `--c:${style.color}`, "stroke-dasharray": DASHES[style.dash] };
    return makeSvg("path", { d: pathOf(points), "data-method": line.method, ...look });
  }

  band(line) {
    const known = line.x.map((_, i) => i).filter((i) => isNumber(line.low?.[i]) && isNumber(line.high?.[i]));
    if (!known.length) return null;
    const edge = (values) => known.map((i) => [this.x(line.x[i]), this.y(values[i])]);
    const outline = `${pathOf([...edge(line.high), ...edge(line.low).reverse()])}Z`;
    return makeSvg("path", { d: outline, class: "band filled", style: `--c:${this.styleOf(line.method).color}` });
  }

  /** A horizontal line with its label. */
  across(level, kind) {
    if (!isNumber(level?.value)) return null;
    const at = this.y(level.value), { left, right } = this.area, text = level.label ?? "";
    const above = (kind === "random" || at > this.area.bottom - 20) && at > this.area.top + 14;
    const middle = at + (above ? -9 : 9), wide = 6.4 * text.length;
    const near = (line, start) => line.x.filter((value, i) => {
      const x = this.x(value), height = this.y(line.mean[i]);
      return x >= start && x <= start + wide && Math.abs(height - middle) < 12;
    }).length;
    const crowd = (start) => this.lines().reduce((sum, line) => sum + near(line, start), 0);
    const steps = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((i) => right - 4 - wide - (i / 8) * Math.max(0, right - left - wide - 8));
    const start = steps.reduce((best, step) => (crowd(step) < crowd(best) ? step : best)); // the position that covers the fewest lines
    return [
      makeSvg("line", { x1: left, x2: right, y1: at, y2: at, class: kind }),
      makeSvg("text", { x: start + wide, y: at + (above ? -5 : 13), "text-anchor": "end", class: kind }, text),
    ];
  }

  zoomTo(zoom) {
    this.zoom = zoom;
    this.reset.disabled = zoom === null;
    this.draw();
  }

  // ------------------------------------------------------------------------------------------------- the pointer

  place(event) {
    const box = this.svg.getBoundingClientRect(), scale = this.svg.viewBox.baseVal.width / box.width;
    const { left, right, top, bottom } = this.area;
    const within = (value, low, high) => Math.min(Math.max(value, low), high);
    return [within((event.clientX - box.left) * scale, left, right), within((event.clientY - box.top) * scale, top, bottom)];
  }

  press(event) {
    if (event.button !== 0 || !event.isPrimary) return;
    this.drag = { start: this.place(event), now: this.place(event) };
    this.svg.setPointerCapture(event.pointerId);
  }

  move(event) {
    const here = this.place(event);
    if (!this.drag) {
      this.read(this.x.invert(here[0]));
      return;
    }
    this.drag.now = here;
    const chosen = this.chosen();
    this.read(null);
    if (!chosen) return;
    const [left, right] = chosen.x, [top, bottom] = chosen.y;
    this.marks.append(makeSvg("rect", { class: "selection", x: left, y: top, width: right - left, height: bottom - top }));
  }

  /** The dragged rectangle in pixels; the full height or width if the drag was flat; null for a tap. */
  chosen() {
    const { start, now } = this.drag, { left, right, top, bottom } = this.area;
    const sorted = (i) => [Math.min(start[i], now[i]), Math.max(start[i], now[i])];
    const wide = Math.abs(start[0] - now[0]) > FEW, tall = Math.abs(start[1] - now[1]) > TALL;
    return wide || tall ? { x: wide ? sorted(0) : [left, right], y: tall ? sorted(1) : [top, bottom], wide, tall } : null;
  }

  release(event) {
    if (!this.drag) return;
    const chosen = this.chosen();
    this.drag = null;
    if (chosen) {
      const x = chosen.x.map(this.x.invert), y = [this.y.invert(chosen.y[1]), this.y.invert(chosen.y[0])];
      this.zoomTo({ x: chosen.wide ? x : (this.zoom?.x ?? null), y: chosen.tall ? y : null });
      return;
    }
    const tap = { time: event.timeStamp, place: this.place(event) };
    const near = (a, b) => a.time - b.time < 400 && Math.hypot(a.place[0] - b.place[0], a.place[1] - b.place[1]) < 30;
    const twice = this.tap && near(tap, this.tap);
    this.tap = twice ? null : tap;
    if (twice) this.zoomTo(null);
    else this.read(this.x.invert(tap.place[0]));
  }

  /** Cancel a drag, because the browser interprets the gesture as scrolling. */
  letGo() {
    this.drag = null;
    this.read(null);
  }

  // ------------------------------------------------------------------------------------------------- reading

  /** Show the values of all lines at the episode nearest to `at`. */
  read(at) {
    this.at = at;
    const seen = at === null ? [] : this.lines().flatMap((line) => line.x);
    const inside = seen.filter((value) => this.x(value) >= this.area.left - 1 && this.x(value) <= this.area.right + 1);
    this.readout.hidden = !inside.length;
    this.marks.replaceChildren();
    if (!inside.length) return;
    const away = (value) => Math.abs(this.x(value) - this.x(at));
    const near = inside.reduce((best, value) => (away(value) < away(best) ? value : best));
    const pixel = this.x(near), { top, bottom } = this.area;
    this.marks.append(makeSvg("line", { x1: pixel, x2: pixel, y1: top, y2: bottom, class: "cursor" }));
    const found = this.lines().flatMap((line) => {
      const gaps = line.x.map((value) => Math.abs(this.x(value) - pixel));
      const i = gaps.indexOf(Math.min(...gaps));
      const covers = near >= line.x[0] && near <= line.x[line.x.length - 1];
      return covers && isNumber(line.mean[i]) ? [{ line, i, mean: line.mean[i] }] : [];
    }).sort((a, b) => b.mean - a.mean);
    for (const { line, i, mean } of found) {
      const height = this.y(mean);
      if (height < top || height > bottom) continue;
      const look = { class: "filled", style: `--c:${this.styleOf(line.method).color}` };
      this.marks.append(makeSvg("circle", { cx: this.x(line.x[i]), cy: height, r: 3.5, ...look }));
    }
    this.readout.replaceChildren(make("b", {}, `episode ${fixed(near, 0)}`), ...found.flatMap(({ line, i, mean }) => {
      const style = this.styleOf(line.method);
      const range = isNumber(line.low?.[i]) ? ` (${fixed(line.low[i])} to ${fixed(line.high[i])})` : "";
      return [swatch(style), make("span", {}, style.label), make("span", { class: "value" }, fixed(mean), make("small", {}, range))];
    }));
    const room = this.plot.clientWidth, wide = this.readout.offsetWidth;
    const beside = pixel > room / 2 ? pixel - 12 - wide : pixel + 12;
    this.readout.style.left = `${Math.max(0, Math.min(beside, room - wide))}px`;
  }

  /** Whether all lines lie within these limits. */
  holdsAll([low, high]) {
    return this.lines().every((line) => line.x[0] >= low && line.x[line.x.length - 1] <= high);
  }

  key(event) {
    const { x, y } = this.ranges();
    const [low, high] = x.map(this.x), middle = this.at === null ? (low + high) / 2 : this.x(this.at);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (step) {
      const every = new Set(this.lines().flatMap((line) => line.x));
      const all = [...every].filter((value) => value >= x[0] && value <= x[1]).sort((a, b) => a - b);
      const now = this.at === null ? (step > 0 ? -1 : all.length) : all.findIndex((value) => value >= this.at - 1e-9);
      this.read(all[Math.min(Math.max(now + step, 0), all.length - 1)] ?? null);
    } else if (factor) {
      const edges = [middle - (middle - low) * factor, middle + (high - middle) * factor].map(this.x.invert);
      this.zoomTo(factor > 1 && this.holdsAll(edges) ? null : { x: edges, y: this.zoom?.y ? y : null });
    } else if (event.key === "Escape" || event.key === "0") this.zoomTo(null);
    else return;
    event.preventDefault();
  }
}
