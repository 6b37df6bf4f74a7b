// The learning curves of an environment: its panels, and a common legend that shows and hides methods.

function curvesOf(env) {
  const styleOf = stylesOf(env.rows), hidden = new Set();
  const methods = [...new Set(env.curves.flatMap((curve) => curve.lines.map((line) => line.method)))];
  const panels = env.curves.map((curve) => new Chart(curve, styleOf, hidden, env.label));
  const buttons = methods.map((method) =>
    make("button", {
      type: "button", class: "small toggle", "data-method": method, "aria-pressed": "true",
      click: () => show([method], hidden.has(method)),
    }, swatch(styleOf(method)), make("span", {}, styleOf(method).label)));

  function show(some, visible) {
    for (const method of some) visible ? hidden.delete(method) : hidden.add(method);
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(!hidden.has(methods[i]))));
    for (const panel of panels) panel.draw();
  }

  const all = make("button", { type: "button", class: "small plain", "aria-label": "show all", click: () => show(methods, true) }, "show all");
  const none = make("button", { type: "button", class: "small plain", "aria-label": "hide all", click: () => show(methods, false) }, "hide all");
  return make("div", { class: "curves" },
    make("div", { class: "legend", role: "group", "aria-label": "methods shown in the curves" }, buttons, all, none),
    make("div", { class: "panels" }, panels.map((panel) => panel.box)),
    make("p", { class: "hint" }, "Lines: means over seeds; bands: 90 % intervals. Drag to zoom, double-click to reset."));
}
