"use strict";
(() => {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const night = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const repaint = []; // what to draw again when colours change

  /** An element: el("p", {class: "x", onclick: f}, "text", child, ...). */
  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  function theme() {
    const button = document.getElementById("theme");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : night.matches);
    const show = () => {
      button.textContent = dark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
      button.setAttribute("aria-pressed", String(dark()));
      repaint.forEach((paint) => paint());
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      show();
    });
    night.addEventListener("change", show);
    show();
  }

  /** Marks in the contents the section one reads. */
  function contents() {
    const links = new Map();
    for (const link of document.querySelectorAll("nav a")) links.set(link.hash.slice(1), link);
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id).setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-15% 0px -75% 0px" });
    for (const id of links.keys()) seen.observe(document.getElementById(id));
  }

  // Words and numbers.

  const MINUS = "\u2212";
  const OUTCOME = {
    good: { word: "success", sign: "✓" },
    bad: { word: "failure", sign: "✕" },
    none: { word: "not executed", sign: "?" },
  };
  const ago = (controls) => `${controls} control${controls === 1 ? "" : "s"} ago`;
  const kindOf = (success) => (success === null ? "none" : success ? "good" : "bad");

  /** Decimals that show four digits of the largest of these numbers. */
  function decimals(values) {
    const most = Math.max(...values.filter((v) => v !== null && Math.abs(v) < 1e9).map(Math.abs));
    return most > 0 ? Math.min(6, Math.max(0, 3 - Math.floor(Math.log10(most)))) : 2;
  }

  /** What rounds to zero has no sign. */
  const shown = (value, digits) => {
    const text = value.toFixed(digits);
    return +text === 0 ? text.replace("-", "") : text.replace("-", MINUS);
  };
  const signed = (value, digits) => (value > 0 ? "+" : "") + shown(value, digits);
  /** Rounded down: a success is never shown with a cost of 1.00. */
  const taskCost = (value) => (value === null ? "–" : (Math.floor(100 * value) / 100).toFixed(2));

  function gateWords(method) {
    if (method.opened === null) return "";
    const word = method.opened ? "gate open" : "gate closed";
    if (method.advantage === null || method.threshold === null) return word;
    if (method.threshold > 1e300) return `${word}: its threshold lets nothing pass`;
    const both = [method.advantage, method.threshold];
    let digits = Math.max(3, decimals(both));
    while (digits < 12 && shown(both[0], digits) === shown(both[1], digits)) digits += 1;
    const sign = method.opened ? ">" : "≤";
    const [a, t] = both.map((v) => shown(v, digits));
    if (a === t) return `${word}: advantage ${method.opened ? "just above" : "not above"} its threshold`;
    return `${word}: advantage ${a} ${sign} threshold ${t}`;
  }

  // The replay.

  /** Draws one execution at a time between 0 and H, which need not be whole. */
  function screen(label) {
    const canvas = el("canvas", { role: "img", "aria-label": label });
    const probe = el("span", { hidden: true });
    document.body.append(probe);
    const colour = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };

    /** The V numbers of a state at a time between two, and those of the state it leads to. */
    function at(pool, states, time) {
      const last = states.length / pool.width - 1;
      const before = Math.min(Math.floor(time), last);
      const after = Math.min(Math.ceil(time), last);
      const share = time - before;
      const [from, to] = [before, after].map((t) => states.slice(pool.width * t, pool.width * (t + 1)));
      const pose = from.map((value, k) => value * (1 - share) + to[k] * share);
      return { pose, to, share: time === before ? 1 : share };
    }

    /** The path of a body; a bar has round ends. */
    function trace(pen, pool, body, pose) {
      const [x, y, a, b] = body.at.map((k) => pose[k]);
      pen.beginPath();
      if (body.kind === "polygon") {
        const [c, s] = [Math.cos(a / pool.angle), Math.sin(a / pool.angle)];
        for (const [u, v] of body.corners) pen.lineTo(x + c * u - s * v, y + s * u + c * v);
        pen.closePath();
      } else if (body.kind === "disc") {
        for (let i = 0; i < body.many; i += 1) {
          const [u, v] = [pose[body.at[0] + 2 * i], pose[body.at[1] + 2 * i]];
          pen.moveTo(u + body.size, v);
          pen.arc(u, v, body.size, 0, 2 * Math.PI);
        }
      } else if (body.kind === "bar") {
        const angle = Math.atan2(y - b, x - a);
        pen.arc(x, y, body.size, angle - Math.PI / 2, angle + Math.PI / 2);
        pen.arc(a, b, body.size, angle + Math.PI / 2, angle - Math.PI / 2);
        pen.closePath();
      }
    }

    /** The way of a push, and the board across it, as far as it has come. */
    function board(pen, body, now, time, pixel) {
      const [x, y, a, b] = body.at.map((k) => now.to[k]);
      const far = Math.hypot(a - x, b - y);
      if (!time || far < 1e-9) return;
      const [u, v] = [x + (a - x) * now.share, y + (b - y) * now.share];
      const [side, up] = [(-(b - y) / far) * body.size, ((a - x) / far) * body.size];
      for (const [wide, p, q, r, s] of [[1.5, x, y, u, v], [4, u - side, v - up, u + side, v + up]]) {
        pen.beginPath();
        pen.moveTo(p, q);
        pen.lineTo(r, s);
        pen.lineWidth = wide * pixel;
        pen.strokeStyle = colour(body.colour);
        pen.stroke();
      }
    }

    function trail(pen, pool, body, states, pose, time) {
      const [i, j] = body.at;
      pen.beginPath();
      for (let t = 0; t <= time; t += 1) pen.lineTo(states[pool.width * t + i], states[pool.width * t + j]);
      pen.lineTo(pose[i], pose[j]);
      pen.stroke();
    }

    /** `part` of the table is shown: {x, y, side} in world units. */
    function draw(pool, part, { aim, ground = [] }, states, time) {
      const side = Math.round(canvas.clientWidth * (window.devicePixelRatio || 1));
      if (!side) return;
      if (canvas.width !== side || canvas.height !== side) canvas.width = canvas.height = side;
      const pen = canvas.getContext("2d");
      const unit = side / part.side;
      const pixel = (window.devicePixelRatio || 1) / unit; // one CSS pixel in world units
      pen.setTransform(1, 0, 0, 1, 0, 0);
      pen.clearRect(0, 0, side, side);
      pen.setTransform(unit, 0, 0, unit, -part.x * unit, -part.y * unit);
      pen.lineJoin = "round";
      const solid = pool.parts.filter((body) => body.kind !== "board");
      pen.fillStyle = colour("line"); // what does not move, such as a road
      for (const corners of ground) {
        pen.beginPath();
        for (const [x, y] of corners) pen.lineTo(x, y);
        pen.fill();
      }
      pen.fillStyle = colour("goal-fill");
      for (const body of solid) {
        trace(pen, pool, body, aim);
        pen.fill();
      }
      if (states) bodies(pen, pool, states, time, pixel);
      pen.strokeStyle = colour("goal");
      for (const body of solid) {
        const single = body.many === 1;
        pen.lineWidth = (single ? 2 : 1) * pixel;
        pen.setLineDash(single ? [5 * pixel, 4 * pixel] : []);
        trace(pen, pool, body, aim);
        pen.stroke();
      }
      pen.setLineDash([]);
      if (states) return;
      pen.fillStyle = colour("soft");
      pen.font = `${14 * pixel}px sans-serif`;
      pen.textAlign = "center";
      pen.fillText("not executed", part.x + part.side / 2, part.y + 24 * pixel);
    }

    function bodies(pen, pool, states, time, pixel) {
      const now = at(pool, states, time);
      pen.lineWidth = pixel;
      pen.strokeStyle = colour("firm");
      for (const body of pool.parts) {
        if (body.colour !== "block" || body.many > 1) continue;
        trace(pen, pool, body, at(pool, states, 0).pose);
        pen.stroke();
      }
      for (const body of pool.parts) {
        if (body.kind === "board") {
          board(pen, body, now, time, pixel);
          continue;
        }
        pen.lineWidth = 1.5 * pixel;
        pen.strokeStyle = pen.fillStyle = colour(body.colour);
        if (body.trail) trail(pen, pool, body, states, now.pose, time);
        trace(pen, pool, body, now.pose);
        pen.globalAlpha = body.colour === "block" ? 0.92 : 1;
        pen.fill();
        pen.globalAlpha = 1;
      }
    }

    return { canvas, draw };
  }

  /** The smallest square part of the table that holds these paths, and its middle if they are short. */
  function partOf(pool, paths) {
    const [low, high] = [[Infinity, Infinity], [-Infinity, -Infinity]];
    const reach = new Map(); // number -> how far the body that it places sticks out
    for (const body of pool.parts) {
      if (body.kind === "board") continue; // it comes from anywhere
      const room = body.kind === "polygon" ? Math.max(...body.corners.map(([x, y]) => Math.hypot(x, y)))
        : body.size + 0.01 * pool.side;
      for (let i = 0; i < body.many; i += 1) {
        const places = body.kind === "polygon" ? body.at.slice(0, 2) : body.at;
        places.forEach((k, n) => reach.set(k + 2 * i, [n % 2, room]));
      }
    }
    for (const path of paths) {
      path.forEach((value, k) => {
        const [axis, room] = reach.get(k % pool.width) ?? [];
        if (axis === undefined) return;
        low[axis] = Math.min(low[axis], value - room);
        high[axis] = Math.max(high[axis], value + room);
      });
    }
    for (const axis of [0, 1]) {
      low[axis] = Math.max(0, low[axis]);
      high[axis] = Math.min(pool.side, high[axis]);
    }
    const side = Math.min(pool.side, Math.max(0.47 * pool.side, high[0] - low[0], high[1] - low[1]));
    const [x, y] = [0, 1].map((axis) => Math.min(pool.side - side, Math.max(0, (low[axis] + high[axis] - side) / 2)));
    return { x, y, side };
  }

  // The inspector.

  function inspector(pools, place) {
    const view = { pool: 0, start: 0, id: 0, against: "", time: 0, playing: false };
    view.sort = { column: null, down: false };
    view.part = null;
    const pool = () => pools[view.pool];
    const start = () => pool().starts[view.start];
    const index = (id) => start().ids.indexOf(id);
    const steps = () => start().states.find((s) => s !== null)?.length / pool().width - 1 || 0;
    for (const p of pools) p.width = p.starts[0].aim.length;

    const left = screen("Replay of the choice to compare with");
    const right = screen("Replay of the selected candidate");
    const ui = build();
    place.append(...ui.parts);
    place.addEventListener("keydown", keys);
    new ResizeObserver(paint).observe(left.canvas);
    repaint.push(paint);
    changePool(0);

    function build() {
      const found = { parts: [] };
      const change = (name, f) => el("select", { id: name, onchange: (e) => f(e.target) });
      found.pools = change("pick-pool", (s) => changePool(s.selectedIndex));
      found.starts = change("pick-start", (s) => changeStart(s.selectedIndex));
      found.against = change("pick-against", (s) => {
        view.against = s.value;
        pickAgainst();
      });
      pools.forEach((p) => found.pools.append(el("option", {}, p.label)));
      const button = (words, label, f) => el("button", { type: "button", "aria-label": label, onclick: f }, words);
      found.previous = button("‹", "Previous start", () => changeStart(view.start - 1));
      found.next = button("›", "Next start", () => changeStart(view.start + 1));
      const key = (name) => el("kbd", {}, name);
      found.parts.push(el("div", { class: "bar" },
        el("label", {}, "Case", found.pools),
        el("div", { class: "step" }, found.previous, el("label", {}, "Start", found.starts), found.next),
        el("p", { class: "keys" }, key("↑"), " ", key("↓"), " candidate  ", key("←"), " ", key("→"),
          " start  ", key("space"), " play")));
      found.frames = el("div", { class: "frames" });
      found.votes = el("ul", { class: "votes" });
      found.parts.push(el("div", { class: "top" },
        el("div", { class: "panel" }, el("h3", {}, "What is known"), found.frames),
        el("div", { class: "panel" },
          el("h3", {}, "What each method chooses ", el("small", {}, "and how it orders the pool")),
          found.votes,
          el("p", { class: "note" }, "Best first: a tall bar is a candidate whose execution succeeds, "
            + "a short one fails; the arrow marks the selected one. The button names what is executed."))));
      stage(found, button);
      found.table = el("div", { class: "scroll pool", role: "region", "aria-label": "Candidates" });
      found.count = el("small", {});
      found.parts.push(el("div", { class: "panel" },
        el("h3", {}, "All candidates ", found.count), found.table));
      found.said = el("p", { class: "hidden", "aria-live": "polite" });
      found.parts.push(found.said);
      return found;
    }

    function stage(found, button) {
      const show = (shown, above) => {
        const words = el("figcaption");
        return { words, box: el("figure", { class: "screen" }, el("div", { class: "what" }, ...above), shown.canvas, words) };
      };
      found.name = el("strong");
      found.left = show(left, [el("label", {}, "Compare with", found.against)]);
      found.right = show(right, ["Selected", found.name]);
      found.play = button("▶ Play", "Play", () => play(!view.playing));
      found.time = el("input", { type: "range", min: 0, step: 0.01, "aria-label": "Time in controls", oninput: (e) => {
        play(false);
        view.time = Number(e.target.value);
        paint();
      } });
      found.clock = el("output");
      found.facts = el("div", { class: "facts panel" });
      found.legend = el("ul", { class: "legend" });
      found.scene = el("div", { class: "scene" },
        el("div", { class: "panel" }, el("h3", {}, "Executed from the same restored state"),
          el("div", { class: "stage" }, found.left.box, found.right.box,
            el("div", { class: "play" }, found.play, found.time, found.clock)), found.legend),
        found.facts);
      found.parts.push(found.scene);
    }

    // Choosing.

    function changePool(at) {
      view.pool = at;
      ui.pools.selectedIndex = at;
      const first = Math.max(0, start0().methods.findIndex((m) => m.before !== null));
      view.sort = { column: `rank ${first}`, down: false };
      view.against = start0().methods[first]?.before === null ? `choice ${first}` : `base ${first}`;
      legend();
      ui.starts.replaceChildren(...pool().starts.map((s) => el("option", {}, `${s.start} · ${s.identity.slice(0, 8)}`)));
      changeStart(0);
    }

    /** What is drawn; of a world that does not say how, only numbers are shown. */
    function legend() {
      const names = new Map(pool().parts.map((body) => [body.name, body.colour]));
      names.set("goal", "goal");
      if (pool().parts.some((body) => body.trail)) names.set("trail", "trail");
      ui.legend.replaceChildren(...[...names].map(([name, kind]) => el("li", { class: kind }, name)));
      ui.scene.firstChild.hidden = !pool().parts.length;
    }

    function start0() {
      return pool().starts[0];
    }

    function changeStart(at) {
      if (at < 0 || at >= pool().starts.length) return;
      play(false);
      view.start = at;
      ui.starts.selectedIndex = at;
      ui.previous.disabled = at === 0;
      ui.next.disabled = at === pool().starts.length - 1;
      ui.time.max = steps();
      frames();
      votes();
      againstOptions();
      table();
      pick(telling(), false);
      view.time = steps();
      paint();
    }

    /** The corrected choice where it differs from the base choice, else the best execution. */
    function telling() {
      const s = start();
      const moved = s.methods.find((m) => m.before !== null && m.before !== m.chosen);
      if (moved) return moved.chosen;
      const seen = s.ids.filter((_, i) => s.task[i] !== null);
      return seen.length ? seen.reduce((a, b) => (s.task[index(b)] < s.task[index(a)] ? b : a)) : s.ids[0];
    }

    function pick(id, animate = true) {
      const s = start();
      view.id = id;
      const i = index(id);
      const kind = kindOf(s.success[i]);
      ui.name.textContent = `Candidate ${id}`;
      caption(ui.right, i);
      facts(i);
      for (const row of ui.table.querySelectorAll("tbody tr")) {
        const on = Number(row.dataset.id) === id;
        row.setAttribute("aria-selected", String(on));
        row.tabIndex = on ? 0 : -1;
        if (on) reveal(row);
      }
      for (const bar of ui.votes.querySelectorAll("i")) bar.classList.toggle("on", Number(bar.dataset.id) === id);
      ui.said.textContent = `Candidate ${id}: ${OUTCOME[kind].word}, task cost ${taskCost(s.task[i])}`;
      pickAgainst();
      view.time = animate && !still.matches ? 0 : steps();
      if (animate && !still.matches) play(true);
      paint();
    }

    /** Both screens show the same part: that of what methods choose, and of what is compared. */
    function pickAgainst() {
      const s = start();
      caption(ui.left, index(rival()));
      const ids = [view.id, rival(), ...s.methods.map((m) => m.chosen)];
      const paths = ids.map((id) => s.states[index(id)]).filter((path) => path !== null);
      view.part = partOf(pool(), [s.aim, ...paths]);
      paint();
    }

    /** ID of the candidate to compare with. */
    function rival() {
      const [what, m] = view.against.split(" ");
      const method = start().methods[Number(m)];
      if (!method) return start().ids[0];
      return what === "base" ? method.before : method.chosen;
    }

    function caption(side, i) {
      const s = start();
      const kind = kindOf(s.success[i]);
      side.box.className = `screen ${kind}`;
      side.words.textContent = `${OUTCOME[kind].sign} #${s.ids[i]} · ${OUTCOME[kind].word}`
        + (s.task[i] === null ? "" : ` · task cost ${taskCost(s.task[i])}`);
      side.box.querySelector("canvas").setAttribute("aria-label",
        `Replay of candidate ${s.ids[i]}: ${OUTCOME[kind].word}`);
    }

    /** Scrolls the row into view inside its own container, never the page. */
    function reveal(row) {
      const box = ui.table;
      const head = box.querySelector("thead").offsetHeight;
      if (row.offsetTop - head < box.scrollTop) box.scrollTop = row.offsetTop - head;
      const under = row.offsetTop + row.offsetHeight - box.clientHeight;
      if (under > box.scrollTop) box.scrollTop = under;
    }

    // Parts of the page.

    function frames() {
      const s = start();
      const last = s.context.length - 1;
      const one = (source, words, kind) => el("figure", { class: kind },
        el("img", { src: source, alt: `Frame: ${words}`, width: 128, height: 128 }), el("figcaption", {}, words));
      ui.frames.replaceChildren(
        ...s.context.map((f, i) => one(f, i === last ? "now" : ago((last - i) * pool().stride), "")),
        one(s.goal, "goal", "aim"));
    }

    function votes() {
      const s = start();
      ui.votes.replaceChildren(...s.methods.map((method, m) => {
        const kind = kindOf(s.success[index(method.chosen)]);
        const strip = el("div", { class: "strip", "aria-hidden": "true", onclick: (e) => {
          if (e.target.dataset.id) pick(Number(e.target.dataset.id));
        } });
        const order = s.ids.map((_, i) => i).sort((a, b) => method.ranks[a] - method.ranks[b]);
        for (const i of order) {
          const ending = { good: "ok", bad: "", none: "un" }[kindOf(s.success[i])];
          strip.append(el("i", { class: ending, "data-id": s.ids[i], title: `rank ${method.ranks[i]}: #${s.ids[i]}, ${OUTCOME[kindOf(s.success[i])].word}` }));
        }
        const chip = el("button", { type: "button", class: `chip ${kind}`, onclick: () => pick(method.chosen) },
          `${OUTCOME[kind].sign} #${method.chosen} ${OUTCOME[kind].word}`);
        return el("li", {}, el("span", { class: "who" }, pool().methods[m]), chip, strip,
          el("span", { class: "gate" }, gateWords(method)));
      }));
    }

    function againstOptions() {
      const options = [];
      start().methods.forEach((method, m) => {
        const name = pool().methods[m];
        if (method.before !== null) options.push([`base ${m}`, `base choice of ${name}`]);
        options.push([`choice ${m}`, `choice of ${name}`]);
      });
      ui.against.replaceChildren(...options.map(([value, words]) => el("option", { value }, words)));
      ui.against.value = view.against;
    }

    function facts(i) {
      const s = start();
      const places = (name) => decimals(s.methods.flatMap((m) => m[name] ?? []));
      const [coarse, fine] = [places("base"), places("correction")];
      const row = (name, ...cells) => el("tr", {}, el("th", { scope: "row" }, name),
        ...cells.map((words) => el("td", { class: "n" }, words)));
      const table = (heads, rows) => el("table", {},
        el("thead", {}, el("tr", {}, ...heads.map((words, k) => el("th", { scope: "col", class: k ? "n" : "" }, words)))),
        el("tbody", {}, ...rows));
      const moved = s.methods.some((m) => m.base);
      const line = (method, m) => row(pool().methods[m], String(method.ranks[i]), ...(!moved ? [] : method.base
        ? [shown(method.base[i], coarse), signed(method.correction[i], fine)] : ["", ""]));
      ui.facts.replaceChildren(
        el("h3", {}, `How candidate ${s.ids[i]} is seen `, el("small", {}, s.origin[i].replaceAll("_", " "))),
        table(["geometry", "predicted cost"], pool().geometries.map(
          (name, g) => row(name, shown(s.costs[g][i], decimals(s.costs[g]))))),
        table(["method", "rank", ...(moved ? ["base", "correction"] : [])], s.methods.map(line)));
    }

    // The table.

    function columns() {
      const s = start();
      const list = [
        { key: "id", group: "", head: "ID", values: s.ids },
        { key: "outcome", group: "Executed", head: "outcome", values: s.success.map((v, i) => (v === null ? null : 1e6 * (1 - v) + s.task[i])), outcome: true, text: true },
        { key: "task", group: "Executed", head: "task cost", values: s.task, show: taskCost },
      ];
      pool().geometries.forEach((name, g) => list.push(
        { key: `cost ${g}`, group: "Predicted cost", head: name, values: s.costs[g] }));
      pool().methods.forEach((name, m) => list.push(
        { key: `rank ${m}`, group: "Rank by", head: name, values: s.methods[m].ranks, chosen: s.methods[m].chosen }));
      pool().methods.forEach((name, m) => s.methods[m].correction && list.push(
        { key: `correction ${m}`, group: "Correction by", head: name, values: s.methods[m].correction, sign: true }));
      list.push({ key: "origin", group: "Made by", head: "family", values: s.origin, text: true });
      list.forEach((c, i) => { c.edge = i > 0 && c.group !== list[i - 1].group; });
      return list;
    }

    function cell(column, i, digits) {
      const value = column.values[i];
      const edge = column.edge ? " edge" : "";
      if (column.outcome) {
        const kind = kindOf(start().success[i]);
        return el("td", { class: kind + edge }, `${OUTCOME[kind].sign} ${OUTCOME[kind].word}`);
      }
      if (column.text) return el("td", { class: edge }, value);
      if (column.chosen !== undefined) {
        const chosen = column.chosen === start().ids[i];
        return el("td", { class: `n ${value <= 8 ? "near" : "far"}${edge}` },
          chosen ? el("b", { title: "chosen" }, String(value)) : String(value));
      }
      const words = column.show ? column.show(value) : column.sign ? signed(value, digits) : shown(value, digits);
      return el("td", { class: `n${edge}` }, words);
    }

    function table() {
      const all = columns();
      const groups = [];
      for (const c of all) {
        if (c.edge || !groups.length) groups.push({ name: c.group, span: 0, edge: c.edge });
        groups.at(-1).span += 1;
      }
      const top = groups.map((g) => el("th", { colspan: g.span, scope: "colgroup", class: g.edge ? "edge" : "" }, g.name));
      const heads = all.map((c) => el("th", { scope: "col", "data-key": c.key, class: (c.text ? "" : "n") + (c.edge ? " edge" : "") },
        el("button", { type: "button", onclick: () => sort(c.key) }, c.head)));
      const digits = all.map((c) => (c.text || c.show || c.chosen !== undefined || c.key === "id" ? 0 : decimals(c.values)));
      const body = start().ids.map((id, i) => el("tr", { "data-id": id, "aria-selected": "false", tabindex: -1 },
        el("th", { scope: "row", class: "n" }, `${id}`),
        ...all.slice(1).map((c, k) => cell(c, i, digits[k + 1]))));
      const rows = el("tbody", { onclick: (e) => {
        const row = e.target.closest("tr");
        pick(Number(row.dataset.id));
        row.focus({ preventScroll: true });
      } }, ...body);
      ui.table.replaceChildren(el("table", { role: "grid", "aria-label": "Candidates of this start" },
        el("thead", {}, el("tr", {}, ...top), el("tr", {}, ...heads)), rows));
      const won = start().success.filter((v) => v === 1).length;
      ui.count.textContent = `${won} of ${start().ids.length} succeed`;
      order();
    }

    function sort(key) {
      view.sort = { column: key, down: view.sort.column === key && !view.sort.down };
      order();
    }

    /** Rows by the sorted column; what is missing comes last, ties go to the smaller ID. */
    function order() {
      const column = columns().find((c) => c.key === view.sort.column) ?? columns()[0];
      const way = view.sort.down ? -1 : 1;
      const rows = [...ui.table.querySelectorAll("tbody tr")];
      const value = (row) => column.values[index(Number(row.dataset.id))];
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === y) return a.dataset.id - b.dataset.id;
        if (x === null || y === null) return x === null ? 1 : -1;
        return (x < y ? -1 : 1) * way;
      });
      ui.table.querySelector("tbody").append(...rows);
      for (const head of ui.table.querySelectorAll("th[data-key]")) {
        if (head.dataset.key === column.key) head.setAttribute("aria-sort", view.sort.down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      }
    }

    // Time and keys.

    function paint() {
      const s = start();
      if (!view.part) return;
      const [other, own] = [rival(), view.id].map((id) => s.states[index(id)]);
      left.draw(pool(), view.part, s, other, view.time);
      right.draw(pool(), view.part, s, own, view.time);
      ui.time.value = view.time;
      ui.clock.textContent = `${Math.floor(view.time)} / ${steps()}`;
      ui.time.setAttribute("aria-valuetext", `control ${Math.floor(view.time)} of ${steps()}`);
    }

    /** So many controls a second, both executions by the same clock. */
    function play(on) {
      if (on && view.time >= steps()) view.time = 0;
      const begun = on && !view.playing;
      view.playing = on;
      ui.play.textContent = on ? "❚❚ Pause" : "▶ Play";
      ui.play.setAttribute("aria-label", on ? "Pause" : "Play");
      if (!begun) return;
      let last = performance.now();
      const tick = (now) => {
        if (!view.playing) return;
        view.time = Math.min(steps(), view.time + ((now - last) * pool().pace) / 1000);
        last = now;
        if (view.time >= steps()) play(false);
        else requestAnimationFrame(tick);
        paint();
      };
      requestAnimationFrame(tick);
    }

    function keys(event) {
      const tag = event.target.tagName;
      if (tag === "SELECT" || event.altKey || event.ctrlKey || event.metaKey) return;
      if (tag === "INPUT" && event.key.startsWith("Arrow")) return;
      const act = {
        ArrowDown: () => step(1),
        ArrowUp: () => step(-1),
        ArrowLeft: () => turn(-1),
        ArrowRight: () => turn(1),
        " ": tag === "BUTTON" ? null : () => play(!view.playing),
        Enter: tag === "TR" ? () => pick(Number(event.target.dataset.id)) : null,
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    }

    function step(by) {
      const rows = [...ui.table.querySelectorAll("tbody tr")];
      const at = rows.findIndex((row) => Number(row.dataset.id) === view.id);
      const row = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
      pick(Number(row.dataset.id));
      row.focus({ preventScroll: true });
    }

    function turn(by) {
      const inside = ui.table.contains(document.activeElement);
      changeStart(view.start + by);
      if (inside) ui.table.querySelector("tr[aria-selected=true]").focus({ preventScroll: true });
    }
  }

  theme();
  contents();
  const data = document.getElementById("inspector-data");
  if (data) inspector(JSON.parse(data.textContent), document.getElementById("inspector-root"));
})();
