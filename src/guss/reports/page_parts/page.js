// Builds the page, from top to bottom.

const payload = JSON.parse(document.getElementById("payload").textContent);
const filled = (list) => Array.isArray(list) && list.length > 0;
const sentences = (list, attributes = {}) => (list ?? []).map((text) => make("p", attributes, prose(text)));

const idOf = (env) => `env-${env.id ?? env.name}`;
const hint = (text) => make("p", { class: "hint" }, text);

function folded(title, about, ...content) {
  return make("details", {}, make("summary", {}, make("h3", {}, title)), about ? hint(about) : null, content);
}

function header() {
  const places = [
    ...(payload.envs ?? []).map((env) => [idOf(env), env.label]),
    ...(filled(payload.groups) ? [["further", "Further comparisons"]] : []),
    ...(filled(payload.figures) ? [["figures", "Figures"]] : []),
    ...(filled(payload.runs) ? [["runs", "Runs"]] : []),
  ];
  return make("header", {},
    make("p", { class: "eyebrow" }, "guss report"),
    make("h1", {}, payload.title ?? "results"),
    sentences(payload.about, { class: "lead" }),
    places.length > 1
      ? make("nav", { "aria-label": "parts of this page" }, places.map(([id, name]) => make("a", { href: `#${encodeURIComponent(id)}` }, name)))
      : null);
}

function atAGlance() {
  const envs = (payload.envs ?? []).filter((env) => filled(env.rows));
  return envs.length > 1
    ? section("glance", "At a glance", overviewTable(envs), hint([...legendOf(envs.flatMap((env) => env.rows)), "MAR: mean reward or return of the second half of the episodes; p(unsafe): percentage of unsafe steps over all episodes."].join(" ")))
    : null;
}

function notice() {
  return filled(payload.missing)
    ? make("div", { class: "notice", role: "note" }, make("h2", {}, "Missing, incomplete or inconsistent runs"),
      make("ul", {}, payload.missing.map((text) => make("li", {}, prose(text)))))
    : null;
}


function legendOf(rows) {
  const inPaper = rows.some((row) => Object.values(row.measures ?? {}).some((found) => found?.paper));
  return [
    `Mean ± half-width of the 90 % interval over seeds; ${inPaper ? "grey: the paper's values; " : ""}bold: the best safe method.`,
    "Click a number to see its run, or a heading to sort.",
  ];
}

/** Whether rows have the same seeds, and planners the same number of episodes. */
function sizesOf(env) {
  return filled(env.sizes) ? make("p", { class: "sizes" }, prose(env.sizes.join(" "))) : null;
}

function legendOfTable(env) {
  const notes = [
    ...legendOf(env.rows),
    `MAR: ${MEASURES.mar.about}${env.reward ? ` (${env.reward})` : ""}.`,
    `MRCP: ${MEASURES.mrcp_ksteps.about}${isNumber(env.threshold) ? `; the threshold is ${fixed(env.threshold)}` : ""}.`,
    `p(unsafe): ${MEASURES.unsafe_pct.about}; transient: over the first 15 % of the episodes.`,
    ...measuredCosts(env.rows).map((cost) => `p(${cost}): ${aboutMeasured(cost)}; a dash if it was not recorded.`),
    "Planning: time to choose one action, for one seed on one core. Predictions: number of transitions that the model predicts to choose one action.",
  ];
  return hint(notes.join(" "));
}

const ABOUT_TESTS = "Do two methods differ? Two-sided Welch test over seeds; bold: p below 0.05 after Holm's correction for the "
  + "number of tests. Pooled: treats the episodes of all seeds as independent samples, as in the paper.";
const ABOUT_IQM = "Mean of the middle half of the seeds, with its 90 % bootstrap interval.";

function environment(env) {
  const id = idOf(env);
  return make("section", { id, class: "env", "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title` }, env.label),
    env.about ? make("p", { class: "about" }, prose(env.about)) : null,
    filled(env.verdict) ? make("div", { class: "verdict" }, sentences(env.verdict)) : null,
    make("h3", {}, "Results"),
    filled(env.rows) ? [sizesOf(env), resultsTable(env), legendOfTable(env)] : hint("No run of this environment has results yet."),
    filled(env.curves) ? [make("h3", {}, "Learning curves"), curvesOf(env)] : null,
    make("h3", {}, "Animations"),
    filled(env.animations) ? new Player(env).box : hint("No animation of this environment is stored."),
    filled(env.figures) ? [make("h3", {}, "Figures"), figures(env.figures)] : null,
    filled(env.tests) ? folded("Tests", ABOUT_TESTS, testsTable(env)) : null,
    filled(env.rows) ? folded("Interquartile means", ABOUT_IQM, iqmTable(env)) : null);
}

function group(found) {
  const table = (env) => [
    filled(env.rows) ? [sizesOf(env), resultsTable(env)] : hint("No results yet."),
    filled(env.tests) ? folded("Tests", ABOUT_TESTS, testsTable(env)) : null,
  ];
  return folded(found.label, null, found.envs.map((env) => [make("h4", {}, env.label), table(env)]));
}

// ------------------------------------------------------------------------------------------------------ figures

const enlarged = make("dialog", { class: "enlarged", "aria-label": "figure, enlarged", click: () => enlarged.close() });

function figures(list) {
  return make("div", { class: "figures" }, list.map(({ title, caption, src }) => {
    if (!/^data:image\/(svg\+xml|png|jpeg|gif|webp)[;,]/.test(src)) {
      return hint(`The figure “${title}” is not part of this page.`);
    }
    const picture = () => make("img", { src, alt: `${title}. ${caption ?? ""}` });
    const enlarge = () => {
      enlarged.replaceChildren(picture(), make("button", { type: "button" }, "close"));
      enlarged.showModal();
    };
    return make("figure", {}, make("button", { type: "button", class: "enlarge", title: "enlarge", click: enlarge }, picture()),
      make("figcaption", {}, make("b", {}, title), caption ? ` ${prose(caption)}` : null));
  }));
}

// --------------------------------------------------------------------------------------------------------- runs

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = "copy"; }, 2000);
}

/** A folder as a link, unless it is a URL. */
function folderOf(run) {
  if (/^[a-z][a-z0-9+.-]*:|^\/\//i.test(run.folder)) return run.folder;
  return make("a", { href: `${run.folder.split("/").map(encodeURIComponent).join("/")}/` }, run.folder);
}

function seedsOf(run) {
  return Array.isArray(run.seeds) ? `${run.seeds.length} (${run.seeds.join(", ")})` : run.seeds;
}

/** A command that wraps only between words. */
function wordsOf(command) {
  return command.split(" ").flatMap((word, i) => [i ? " " : null, make("span", {}, word)]);
}

function card(run) {
  const facts = [
    ["folder", run.folder ? folderOf(run) : null], ["seeds", seedsOf(run)], ["episodes", run.episodes], ["settings", run.settings],
    ["date", run.date], ["commit", run.commit ? make("code", { title: run.commit }, run.commit.slice(0, 12)) : null],
    ["machine", run.machine], ["versions", run.versions], ["plugins", run.plugins],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const button = make("button", {
    type: "button", class: "small copy", "aria-label": `copy the command of ${run.run}`, click: () => copy(button, run.command),
  }, "copy");
  return make("article", { id: `run-${run.run}`, class: "run", tabindex: -1 },
    make("h3", {}, run.run),
    run.command ? make("div", { class: "command" }, make("code", {}, wordsOf(run.command)), button) : null,
    make("dl", {}, facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
}

// ------------------------------------------------------------------------------------------------------ the page

function section(id, title, ...content) {
  return make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), content);
}

/** Open all folded parts for printing. */
function openForPrint() {
  const opened = [];
  const open = () => {
    for (const part of document.querySelectorAll("details:not([open])")) opened.push(Object.assign(part, { open: true }));
  };
  const close = () => opened.splice(0).forEach((part) => { part.open = false; });
  window.matchMedia("print").addEventListener("change", (change) => (change.matches ? open() : close()));
  window.addEventListener("beforeprint", open);
  window.addEventListener("afterprint", close);
}

const report = document.getElementById("report");
report.replaceChildren(...[header(), atAGlance(), notice()].filter(Boolean));
if (filled(payload.envs)) report.append(...payload.envs.map(environment));
else report.append(make("p", { class: "notice" }, "There is nothing to compare yet: no environment has stored runs."));
if (filled(payload.groups)) report.append(section("further", "Further comparisons", payload.groups.map(group)));
if (filled(payload.figures)) report.append(section("figures", "Figures", figures(payload.figures)));
if (filled(payload.runs)) {
  report.append(section("runs", "Runs", hint("The runs from which the numbers above are computed, each with the command that reproduces it."),
    make("div", { class: "cards" }, payload.runs.map(card))));
}
report.append(make("footer", {}, make("p", {}, "Written by ", make("code", {}, payload.command ?? "guss report"),
  payload.version ? ` with guss ${payload.version}.` : ".", " This file is self-contained.")), enlarged);
openForPrint();
if (location.hash.length > 1) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
