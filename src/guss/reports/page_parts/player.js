// The films of an environment: a tab for each method, played when in sight.

const FRAMES_PER_SECOND = 8;
const HOLD = 1.2; // seconds that the last frame stays
let players = 0;

/** A film as the payload carries it: gzip'd JSON in base64. */
async function unpack(data) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

class Player {
  constructor(env) {
    this.data = new Map(env.films.map((film) => [film.method, film.data]));
    this.labels = new Map([...env.films, ...env.rows].map((one) => [one.method, one.label]));
    this.methods = [...new Set([...env.rows, ...env.films].map((one) => one.method))];
    this.unpacked = new Map();
    Object.assign(this, { id: `player-${(players += 1)}`, env, film: null, frame: 0, playing: false, inSight: false, speed: 1, waited: 0 });
    this.wanted = !window.matchMedia("(prefers-reduced-motion: reduce)").matches; // whether it should play when in sight
    this.build();
    this.choose(env.films[0]?.method ?? this.methods[0]);
    this.watch();
  }

  build() {
    this.tabs = this.methods.map((method, i) => make("button", {
      type: "button", role: "tab", class: this.data.has(method) ? "tab" : "tab without",
      id: `${this.id}-tab-${i}`, "aria-controls": this.id, "data-method": method,
      click: () => this.choose(method, true), keydown: (event) => this.key(event, i),
    }, this.labels.get(method)));
    this.said = make("p", { class: "said" });
    this.button = make("button", { type: "button", class: "play", click: () => this.play(!this.playing, true) });
    this.slider = make("input", {
      type: "range", min: 0, step: 1, value: 0, "aria-label": "step of the film", input: () => this.seek(Number(this.slider.value)),
    });
    this.count = make("output", { class: "count" });
    this.pace = make("select", { "aria-label": "speed", change: () => { this.speed = Number(this.pace.value); } },
      [0.25, 0.5, 1, 2, 4].map((speed) => make("option", { value: speed, selected: speed === 1 }, `${speed}×`)));
    this.controls = make("div", { class: "controls" }, this.button, this.slider, this.count, this.pace);
    this.stage = make("div", { class: "stage" });
    this.told = make("p", { class: "told" });
    this.verdict = make("p", { class: "hint" });
    this.panel = make("div", { role: "tabpanel", id: this.id, class: "film" }, this.said, this.stage, this.controls, this.told, this.verdict);
    const list = make("div", { class: "tabs", role: "tablist", "aria-label": `films of ${this.env.label}` }, this.tabs);
    this.box = make("div", { class: "player" }, list, this.panel);
  }

  /** Play in sight, wait out of it, draw anew in another size. What is shown is unpacked when it comes near, or when there is time. */
  watch() {
    new IntersectionObserver(([entry]) => {
      this.inSight = entry.isIntersecting;
      this.play(this.inSight && this.wanted);
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

  /** Unpack the chosen method's film, once. */
  async load() {
    const method = this.method;
    if (this.shown === method) return;
    this.shown = method;
    this.show(null, this.data.has(method) ? "unpacking the film …" : `No film of ${this.labels.get(method)} is stored.`);
    if (!this.data.has(method)) return;
    try {
      if (!this.unpacked.has(method)) this.unpacked.set(method, unpack(this.data.get(method)));
      const film = await this.unpacked.get(method);
      if (this.shown === method) this.show(film, summaryOf(film));
    } catch (problem) {
      this.show(null, `This film cannot be shown: ${problem.message}`);
    }
  }

  show(film, said) {
    this.film = film;
    this.frame = 0;
    this.said.textContent = said;
    this.panel.classList.toggle("empty", film === null);
    this.verdict.textContent = film ? prose(film.verdict ?? "") : "";
    this.parts = film ? partsOf(film, this.env.label) : [];
    this.stage.replaceChildren(...this.parts.map((part) => part.box));
    this.stage.style.setProperty("--columns", Math.max(this.parts.length - 1, 1));
    const course = this.parts[this.parts.length - 1]?.canvas;
    for (const kind of ["pointerdown", "pointermove"]) course?.addEventListener(kind, (event) => event.buttons === 1 && this.seekAt(event));
    this.slider.max = film ? film.frames.length - 1 : 0;
    this.play(film !== null && this.inSight && this.wanted);
    this.draw();
  }

  /** Play or pause; `asked`: by the reader, whose wish is kept. */
  play(on, asked = false) {
    if (asked) this.wanted = on;
    this.playing = on && this.film !== null;
    this.button.textContent = this.playing ? "❚❚ pause" : "▶ play";
    if (this.playing && asked && this.frame === this.film.frames.length - 1) this.frame = 0;
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
    const last = this.film.frames.length - 1;
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

  /** The frame nearest to where the course was touched. */
  seekAt(event) {
    const box = event.target.getBoundingClientRect();
    const share = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    const step = share * this.film.course.values.length;
    const gaps = this.film.frames.map((frame) => Math.abs(frame.step - step));
    this.seek(gaps.indexOf(Math.min(...gaps)));
  }

  draw() {
    if (!this.film) return;
    const frame = this.film.frames[this.frame];
    for (const part of this.parts) if (part.canvas.clientWidth) part.draw(part.canvas, this.film, frame);
    const count = `step ${frame.step} (0 to ${this.film.steps - 1})`;
    const unsafe = this.film.course.unsafe.filter((step) => step <= frame.step).length;
    this.slider.value = this.frame;
    this.slider.setAttribute("aria-valuetext", count);
    this.count.textContent = count;
    const sofar = unsafe === 0 ? "no unsafe step so far" : `${unsafe} unsafe step${unsafe > 1 ? "s" : ""} so far`;
    this.told.textContent = [sofar, prose(frame.text ?? "")].filter(Boolean).join(" · ");
  }
}

function summaryOf(film) {
  const how = { plan: "", policy: " (a learned policy acts)", random: " (random actions)" }[film.phase];
  const unsafe = film.unsafe_steps === 0 ? "no step unsafe" : `${film.unsafe_steps} of ${film.steps} steps unsafe`;
  return `Episode ${film.episode} of seed ${film.seed}${how}: mean reward ${fixed(film.mean_reward)}, return ${short(film.return)}, ${unsafe}.`;
}

/** The panels of a film, the course last. */
function partsOf(film, envLabel) {
  const part = (kind, title, draw, key) => {
    const canvas = make("canvas", { role: "img", "aria-label": `${title}, ${envLabel}` });
    return { canvas, draw, box: make("div", { class: `part ${kind}` }, make("h4", {}, title), canvas, make("p", { class: "key" }, key)) };
  };
  const line = (colour, name) => make("span", {}, make("i", { style: `background:${colour}` }), name);
  const lines = [line(FILM.past, "so far")];
  if (plans(film)) lines.push(line(FILM.safe, "safe plans"), line(FILM.unsafe, "unsafe plans"), line(FILM.chosen, "chosen"));
  if (film.axes.unsafe.length) lines.push(line(FILM.zone, "unsafe zone"));
  const parts = [part("plans", plans(film) ? "Where the plans lead" : "The course so far", drawPlans, lines)];
  if (film.world) parts.unshift(part("system", "The system", drawSystem, ["red: unsafe"]));
  if (film.behaviour) {
    const title = film.behaviour.kept ? "Archive: the best plan of each kind" : "The best plan of each kind";
    const ramp = make("span", {}, "lowest", make("i", { class: "ramp" }), "highest reward");
    const ring = make("span", {}, make("i", { class: "ring" }), "chosen");
    parts.push(part("archive", title, drawArchive, [ramp, line(FILM.unsafe, "only unsafe plans"), ring]));
  }
  return [...parts, part("course", "The episode (red dots: unsafe steps)", drawCourse, [])];
}
