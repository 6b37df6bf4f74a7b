// Sortable tables of the page: results, tests, interquartile means.

const MEASURES = {
  mar: { name: "MAR", unit: "", better: "↑", about: "mean asymptotic reward: the mean over the second half of the episodes" },
  mrcp_ksteps: { name: "MRCP", unit: "1000 steps", better: "↓", about: "mean reward convergence pace: real steps until the threshold is first reached, in thousands" },
  unsafe_pct: { name: "p(unsafe)", unit: "%", better: "↓", about: "percentage of unsafe steps over all episodes" },
  unsafe_trans_pct: { name: "transient", unit: "%", better: "↓", about: "percentage of unsafe steps over the first 15 % of the episodes" },
};

const nameOf = (measure) => MEASURES[measure]?.name ?? measure;

/** Compares numbers or texts; missing values come last in both directions. */
function compare(a, b, direction) {
  const gone = (value) => value === null || value === undefined;
  if (gone(a) || gone(b)) return gone(a) - gone(b);
  return direction * (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
}

/**
 * A table in a scrollable box. columns: {head, unit?, about?, text?: true, key: item → sort key, cell: item → nodes}.
 * The initial order has headings for sections, a sorted order has none.
 */
function sortableTable(caption, columns, items, sectionOf = () => null) {
  const table = make("table", {}, make("caption", {}, caption));
  const sorting = { column: null, direction: 0 };
  const heads = columns.map((column, index) => {
    const arrow = make("span", { class: "arrow", "aria-hidden": "true" });
    const unit = column.unit ? make("span", { class: "unit" }, column.unit) : null;
    const button = make("button", { type: "button", title: column.about, click: () => turn(index) }, column.head, arrow, unit);
    return make("th", { scope: "col", class: column.text ? "words" : null, "aria-sort": "none" }, button);
  });
  table.append(make("thead", {}, make("tr", {}, heads)));
  const rows = items.map((item) =>
    make("tr", { "data-method": item.method }, columns.map((column, index) =>
      make(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: column.text ? "words" : null }, column.cell(item)))));
  show();

  /** Ascending, descending, initial order. */
  function turn(index) {
    const same = sorting.column === index;
    sorting.direction = same ? { 1: -1, "-1": 0, 0: 1 }[sorting.direction] : 1;
    sorting.column = sorting.direction ? index : null;
    heads.forEach((head, i) => {
      const state = i === sorting.column ? (sorting.direction > 0 ? "ascending" : "descending") : "none";
      head.setAttribute("aria-sort", state);
    });
    show();
  }

  function show() {
    for (const body of [...table.tBodies]) body.remove();
    if (sorting.column !== null) {
      const key = columns[sorting.column].key;
      const order = items.map((_, i) => i).sort((a, b) => compare(key(items[a]), key(items[b]), sorting.direction) || a - b);
      table.append(make("tbody", {}, order.map((i) => rows[i])));
      return;
    }
    for (const section of new Set(items.map(sectionOf))) {
      const body = make("tbody");
      const head = () => make("th", { colspan: columns.length, scope: "rowgroup" }, make("span", {}, section));
      if (section) body.append(make("tr", { class: "section" }, head()));
      body.append(...rows.filter((_, i) => sectionOf(items[i]) === section));
      table.append(body);
    }
  }

  return make("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": caption }, table);
}

/** A number that links to its run, if the run is on the page. */
function linked(row, text, attributes = {}) {
  return row.run ? make("a", { href: `#run-${encodeURIComponent(row.run)}`, ...attributes }, text) : make("span", attributes, text);
}

function measureCell(row, measure) {
  const found = row.measures?.[measure];
  if (!found || !isNumber(found.mean)) return [MISSING, paperLine(found)];
  const notes = [
    isNumber(found.half) ? `half-width of the 90 % interval over seeds: ${short(found.half)}` : "no interval: a single value",
    isNumber(found.pooled) ? `over seeds and episodes pooled: ± ${short(found.pooled)}` : null,
    isNumber(found.iqm) ? `interquartile mean ${rangeText(found)}` : null,
  ];
  const number = linked(row, plusMinus(found.mean, found.half), { title: notes.filter(Boolean).join("\n"), class: "number" });
  const few = isNumber(found.reached) && isNumber(row.seeds) && found.reached < row.seeds;
  const reached = few ? make("span", { class: "aside" }, `reached by ${found.reached} of ${row.seeds} seeds`) : null;
  return [found.best ? make("strong", {}, number) : number, reached, paperLine(found)];
}

function paperLine(found) {
  return found?.paper ? make("span", { class: "paper" }, `[paper ${plusMinus(...found.paper)}]`) : null;
}

function rangeText(found) {
  return `${fixed(found.iqm)}${isNumber(found.iqm_low) ? ` [${fixed(found.iqm_low)}, ${fixed(found.iqm_high)}]` : ""}`;
}

function methodCell(row) {
  return make("span", { class: "method" }, swatch({ color: colourOf(row.color), dash: row.dash }), make("span", {}, row.label));
}

const namesIn = (rows, namesOf) => [...new Set(rows.flatMap(namesOf))];
const measuredCosts = (rows) => namesIn(rows, (row) => row.measured ?? []);
const aboutMeasured = (cost) => `percentage of steps with the cost ${cost}, which plans do not use, over all episodes`;

/** The constraints, if there are several. */
function constraintsOf(rows) {
  const names = namesIn(rows, (row) => Object.keys(row.by_cost ?? {}).filter((name) => !row.measured?.includes(name)));
  return names.length > 1 ? names : [];
}

/** The paper's table with additional columns. */
function resultsTable(env) {
  const plain = (head, unit, about, value, text) => ({
    head, unit, about, key: value,
    cell: (row) => (isNumber(value(row)) ? linked(row, text(row), { class: "number" }) : MISSING),
  });
  const ofCost = (head, unit, about, cost) =>
    plain(head, unit, about, (row) => row.by_cost?.[cost]?.[0], (row) => plusMinus(...row.by_cost[cost]));
  const measured = measuredCosts(env.rows).map((cost) => ofCost(`p(${cost}) ↓`, "%", aboutMeasured(cost), cost));
  const columns = [
    { head: "method", text: true, key: (row) => row.label, cell: methodCell },
    ...Object.entries(MEASURES).flatMap(([measure, { name, unit, better, about }]) => [
      {
        head: `${name} ${better}`, unit, about,
        key: (row) => row.measures?.[measure]?.mean, cell: (row) => measureCell(row, measure),
      },
      ...(measure === "unsafe_pct" ? measured : []),
    ]),
    ...constraintsOf(env.rows).map((cost) =>
      ofCost(cost, "unsafe, %", `percentage of steps that violate ${cost}, over all episodes`, cost)),
    ...(env.rows.some((row) => row.jitter) ? [plain("jitter", "of the range", "mean change of the action from one step to the next, as a share of its range, over the second half of the episodes", (row) => row.jitter?.[0], (row) => plusMinus(...row.jitter))] : []),
    plain("Pareto", "rank", "1: no other method is better in reward or unsafe steps and at least as good in the other", (row) => row.rank, (row) => String(row.rank)),
    plain("planning", "ms/step", "time to choose one action, for one seed on one core, in the fastest episode", (row) => row.plan_ms, (row) => short(row.plan_ms)),
    plain("predictions", "per step", "transitions that the model predicts to choose one action", (row) => row.evaluations, (row) => fixed(row.evaluations, 0)),
    plain("seeds", null, "number of independent runs", (row) => row.seeds, (row) => String(row.seeds)),
    plain("episodes", null, "episodes of each seed", (row) => row.episodes,
      (row) => fixed(row.episodes, 0) + (isNumber(row.planned) && row.episodes < row.planned ? ` of ${fixed(row.planned, 0)}` : "")),
  ];
  return sortableTable(`Results on ${env.label}`, columns, env.rows, (row) => row.section);
}

/** Reward, unsafe steps and measured costs of every method on every environment. */
function overviewTable(envs) {
  const rows = envs.flatMap((env) => env.rows);
  const sections = [...new Set(rows.map((row) => row.section))];
  const methods = rows.filter((row, i) => rows.findIndex(({ method }) => method === row.method) === i)
    .sort((a, b) => sections.indexOf(a.section) - sections.indexOf(b.section));
  const measured = envs.flatMap((env) => {
    const of = (item) => env.rows.find((row) => row.method === item.method);
    const measures = ["mar", "unsafe_pct"].map((measure) => {
      const { name, unit, better, about } = MEASURES[measure];
      return {
        head: `${name} ${better}`, unit: unit ? `${env.label}, ${unit}` : env.label, about,
        key: (item) => of(item)?.measures?.[measure]?.mean, cell: (item) => (of(item) ? measureCell(of(item), measure) : MISSING),
      };
    });
    const costs = measuredCosts(env.rows).map((cost) => {
      const pair = (item) => of(item)?.by_cost?.[cost];
      return {
        head: `p(${cost}) ↓`, unit: `${env.label}, %`, about: aboutMeasured(cost), key: (item) => pair(item)?.[0],
        cell: (item) => (isNumber(pair(item)?.[0]) ? linked(of(item), plusMinus(...pair(item)), { class: "number" }) : MISSING),
      };
    });
    return [...measures, ...costs];
  });
  const name = { head: "method", text: true, key: (row) => row.label, cell: methodCell };
  return sortableTable("All environments at a glance", [name, ...measured], methods, (row) => row.section);
}

/** Tests between pairs of methods. */
function testsTable(env) {
  const label = (method) => stylesOf(env.rows)(method).label;
  const column = (head, about, field, text) => ({ head, about, key: (test) => test[field], cell: (test) => text(test[field]) });
  const words = (head, value) => ({ head, text: true, key: value, cell: (test) => value(test) });
  return sortableTable(`Tests on ${env.label}`, [
    words("measure", (test) => nameOf(test.measure)),
    words("A", (test) => label(test.a)),
    words("B", (test) => label(test.b)),
    column("A − B", "difference of the means over seeds", "difference", (value) => fixed(value)),
    column("p", "Welch's test over seeds, two-sided", "p", pValue),
    column("p, Holm", "corrected for the number of tests by Holm's method", "p_holm",
      (value) => (isNumber(value) && value < 0.05 ? make("strong", {}, pValue(value)) : pValue(value))),
    column("p, pooled", "Welch's test over seeds and episodes pooled, as in the paper", "p_pooled", pValue),
  ], env.tests);
}

/** Interquartile means, which are robust against single outlying seeds. */
function iqmTable(env) {
  return sortableTable(`Interquartile means on ${env.label}`, [
    { head: "method", text: true, key: (row) => row.label, cell: methodCell },
    ...Object.entries(MEASURES).map(([measure, { name, unit, better, about }]) => ({
      head: `${name} ${better}`, unit, about,
      key: (row) => row.measures?.[measure]?.iqm,
      cell: (row) => {
        const found = row.measures?.[measure];
        return found && isNumber(found.iqm) ? linked(row, rangeText(found), { class: "number" }) : MISSING;
      },
    })),
  ], env.rows, (row) => row.section);
}
