// The animations of an environment: a tab for each method, played when in view.

const FRAMES_PER_SECOND = 8;
const HOLD = 1.2; // seconds for which the last frame is shown
let players = 0;

/** Decode an animation of the payload: gzipped JSON in base64. */
async function unpack(data) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

class Player {
  constructor(env) {
    this.data = new Map(env.animations.map((animation) => [animation.method, animation.data]));
    this.labels = new Map([...env.animations, ...env.rows].map((one) => [one.method, one.label]));
    this.methods = [...new Set([...env.rows, ...env.animations].map((one) => one.method))];
    this.unpacked = new Map();
    Object.assign(this, { id: `player-${(players += 1)}`, env, animation: null, frame: 0, playing: false, inView: false, speed: 1, waited: 0 });
    this.wanted = !window.matchMedia("(prefers-reduced-motion: reduce)").matches; // whether it should play when in view
    this.build();
    this.choose(env.animations[0]?.method ?? this.methods[0]);
    this.watch();
  }

  build() {
    this.tabs = this.methods.map((method, i) => make("button", {
      type: "button", role: "tab", class: this.data.has(method) ? "tab" : "tab without",
      id: `${this.id}-tab-${i}`, "aria-controls": this.id, "data-method": method,
      click: () => this.choose(method, true), keydown: (event) => this.key(event, i),
    }, this.labels.get(method)));
    this.summary = make("p", { class: "summary" });
    this.button = make("button", { type: "button", class: "play", click: () => this.play(!this.playing, true) });
    this.slider = make("input", {
      type: "range", min: 0, step: 1, value: 0, "aria-label": "step of the animation", input: () => this.seek(Number(this.slider.value)),
    });
    this.count = make("output", { class: "count" });
    this.pace = make("select", { "aria-label": "speed", change: () => { this.speed = Number(this.pace.value); } },
      [0.25, 0.5, 1, 2, 4].map((speed) => make("option", { value: speed, selected: speed === 1 }, `${speed}×`)));
    this.controls = make("div", { class: "controls" }, this.button, this.slider, this.count, this.pace);
    this.stage = make("div", { class: "stage" });
    this.texts = make("p", { class: "texts" });
    this.verdict = make("p", { class: "hint" });
    this.panel = make("div", { role: "tabpanel", id: this.id, class: "animation" }, this.summary, this.stage, this.controls, this.texts, this.verdict);
    const list = make("div", { class: "tabs", role: "tablist", "aria-label": `animations of ${this.env.label}` }, this.tabs);
    this.box = make("div", { class: "player" }, list, this.panel);
  }

  /** Play when visible, pause when hidden, redraw after a resize; unpack the chosen animation when it is almost visible or the browser is idle. */
  watch() {
    new IntersectionObserver(([entry]) => {
      this.inView = entry.isIntersecting;
      this.play(this.inView && this.wanted);
    }, { threshold: 0.25 }).observe(this.stage);
    const near = (entries) => entries.some((entry) => entry.isIntersecting) && this.load();
    new IntersectionObserver(near, { rootMargin: "60%" }).observe(this.box);
    window.addEventListener("load", () => (window.requestIdleCallback ?? setTimeout)(() => this.load()));
    new ResizeObserver(() => this.draw()).observe(this.stage);
  }

  choose(method, load = false) {
    this.method = method;
    this.tabs.forEach((tab, i) => {
      const chosen = this.methods[i] === method;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen) this.panel.setAttribute("aria-labelledby", tab.id);
    });
    if (load) this.load();
  }

  key(event, i) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const next = (i + step + this.methods.length) % this.methods.length;
    this.choose(this.methods[next], true);
    this.tabs[next].focus();
    event.preventDefault();
  }

  /** Unpack the chosen method's animation, once. */
  async load() {
    const method = this.method;
    if (this.shown === method) return;
    this.shown = method;
    this.show(null, this.data.has(method) ? "loading the animation …" : `No animation of ${this.labels.get(method)} is stored.`);
    if (!this.data.has(method)) return;
    try {
      if (!this.unpacked.has(method)) this.unpacked.set(method, unpack(this.data.get(method)));
      const animation = await this.unpacked.get(method);
      if (this.shown === method) this.show(animation, prose(animation.summary));
    } catch (problem) {
      this.show(null, `This animation cannot be shown: ${problem.message}`);
    }
  }

  show(animation, summary) {
    this.animation = animation;
    this.frame = 0;
    this.summary.textContent = summary;
    this.panel.classList.toggle("empty", animation === null);
    this.verdict.textContent = animation ? prose(animation.verdict ?? "") : "";
    this.parts = animation ? partsOf(animation, this.env.label) : [];
    this.stage.replaceChildren(...this.parts.map((part) => part.box));
    this.stage.style.setProperty("--columns", Math.max(this.parts.length - 1, 1));
    const course = this.parts[this.parts.length - 1]?.canvas;
    for (const kind of ["pointerdown", "pointermove"]) course?.addEventListener(kind, (event) => event.buttons === 1 && this.seekAt(event));
    this.slider.max = animation ? animation.frames.length - 1 : 0;
    this.play(animation !== null && this.inView && this.wanted);
    this.draw();
  }

  /** Play or pause; `asked`: the reader pressed a control, which overrides automatic playing. */
  play(on, asked = false) {
    if (asked) this.wanted = on;
    this.playing = on && this.animation !== null;
    this.button.textContent = this.playing ? "❚❚ pause" : "▶ play";
    if (this.playing && asked && this.frame === this.animation.frames.length - 1) this.frame = 0;
    if (!this.playing || this.ticking) return;
    this.ticking = true;
    this.before = performance.now();
    requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.ticking = this.playing;
    if (!this.playing) return;
    this.waited += Math.max(now - this.before, 0) / 1000;
    this.before = now;
    const last = this.animation.frames.length - 1;
    const due = this.frame === last ? HOLD : 1 / (FRAMES_PER_SECOND * this.speed);
    if (this.waited >= due) {
      this.waited = 0;
      this.frame = this.frame === last ? 0 : this.frame + 1;
      this.draw();
    }
    requestAnimationFrame((then) => this.tick(then));
  }

  seek(frame) {
    this.frame = frame;
    this.waited = 0;
    this.play(false, true);
    this.draw();
  }

  /** Seek the frame nearest to a click on the episode's curve. */
  seekAt(event) {
    const box = event.target.getBoundingClientRect();
    const share = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    const step = share * this.animation.course.values.length;
    const gaps = this.animation.frames.map((frame) => Math.abs(frame.step - step));
    this.seek(gaps.indexOf(Math.min(...gaps)));
  }

  draw() {
    if (!this.animation) return;
    const frame = this.animation.frames[this.frame];
    for (const part of this.parts) if (part.canvas.clientWidth) part.draw(part.canvas, this.animation, frame);
    const count = `step ${frame.step} (0 to ${this.animation.steps - 1})`;
    this.slider.value = this.frame;
    this.slider.setAttribute("aria-valuetext", count);
    this.count.textContent = count;
    this.texts.textContent = [frame.progress, frame.text].filter(Boolean).map(prose).join(" · ");
  }
}

/** The panels of an animation; the curve of the episode is the last one. */
function partsOf(animation, envLabel) {
  const part = (kind, draw, key) => {
    const title = animation.titles[kind], canvas = make("canvas", { role: "img", "aria-label": `${title}, ${envLabel}` });
    return { canvas, draw, box: make("div", { class: `part ${kind}` }, make("h4", {}, title), canvas, make("p", { class: "key" }, key)) };
  };
  const line = (colour, name) => make("span", {}, make("i", { style: `background:${COLOURS[colour]}` }), name);
  const parts = [part("plans", drawPlans, animation.legend.map(([colour, name]) => line(colour, name)))];
  if (animation.world) parts.unshift(part("system", drawSystem, []));
  if (animation.behaviour) {
    const ramp = make("span", {}, "lowest", make("i", { class: "ramp" }), "highest reward");
    const ring = make("span", {}, make("i", { class: "ring" }), "chosen plan");
    parts.push(part("archive", drawArchive, [ramp, line("unsafe", "unsafe plans only"), ring]));
  }
  return [...parts, part("course", drawCourse, [])];
}
