/* Asks the server what is new, and shows it. Whatever a store holds becomes text, never markup. */
"use strict";

(function () {
  const PAUSE = 2000; // milliseconds between two questions
  const place = (id) => document.getElementById(id);
  const versions = new Map(); // by address: what was answered last
  let timer = 0;

  function cell(value, kind) {
    const found = document.createElement("td");
    if (value instanceof Node) found.append(value);
    else found.textContent = value === null || value === undefined ? "-" : String(value);
    if (kind) found.className = kind;
    return found;
  }

  function tagged(tag, text, kind) {
    const found = document.createElement(tag);
    found.textContent = text;
    if (kind) found.className = kind;
    return found;
  }

  function fill(table, heads, rows) {
    const head = document.createElement("tr");
    heads.forEach((name) => head.append(tagged("th", name)));
    const lines = rows.map((cells) => {
      const line = document.createElement("tr");
      line.append(...cells);
      return line;
    });
    table.replaceChildren(head, ...lines);
  }

  function link(job, text) {
    const found = tagged("a", text);
    found.href = "#" + encodeURIComponent(job);
    return found;
  }

  const counted = (outcomes) =>
    Object.entries(outcomes).filter(([status]) => status !== "ok")
      .map(([status, count]) => count + " " + status).join(", ") || "none";
  const moment = (text) => text.slice(0, 19).replace("T", " ");

  function showAll(told) {
    place("where").textContent = told.store + ": " + told.trials + " trials";
    const heads = ["job", "state", "workload", "machine", "trials", "failures", "best", "rate",
                   "last seen (UTC)"];
    fill(place("jobs"), heads, told.jobs.map((job) => [
      cell(link(job.job, job.job)), cell(tagged("span", job.state, "state " + job.state)),
      cell(job.title), cell(job.by ? job.machine + ", " + job.by : job.machine),
      cell(job.trials, "number"), cell(counted(job.outcomes)), cell(job.best, "number"),
      cell(job.rate, "number"), cell(moment(job.updated)),
    ]));
    fill(place("machines"), ["machine", "target", "trials", "failures", "runs now"],
      told.machines.map((one) => [
        cell(one.model), cell(one.target), cell(one.trials, "number"), cell(counted(one.outcomes)),
        cell(one.running.join(", ") || "nothing"),
      ]));
    document.title = "Tilewright: " + told.jobs.length + " jobs";
  }

  function showOne(told) {
    place("title").textContent = told.title;
    const best = told.best ? "best " + told.best + (told.rate ? ", " + told.rate : "") : "nothing valid yet";
    place("facts").textContent = ["job " + told.job, told.by ? told.state + " in " + told.by : told.state,
      told.target + " on " + told.machine, told.trials + " trials", best + (told.settled ? " in finals" : ""),
      "strategy " + (told.options.strategy || "not told")].join(" · ");
    for (const name of ["by_trial", "by_time", "accuracy"]) {
      const figure = told.figures[name];
      place(name).parentElement.hidden = !figure;
      if (figure) window.tilewright.draw(place(name), figure);
    }
    place("no_accuracy").hidden = Boolean(told.figures.accuracy);
    fill(place("failures"), ["kind", "trials", "the newest of them", "its schedule"],
      told.failures.map((one) => [cell(one.status), cell(one.trials, "number"), cell(one.detail),
        cell(tagged("code", one.schedule))]));
    fill(place("latest"), ["when (UTC)", "status", "time", "schedule"], told.latest.map((one) => [
      cell(moment(one.created)), cell(one.status), cell(one.time, "number"),
      cell(tagged("code", one.schedule))]));
    const values = told.schedule ? Object.entries(told.schedule.values) : [];
    fill(place("schedule"), ["decision", "value"], values.map(([name, value]) => [
      cell(tagged("code", name)), cell(tagged("code", String(value)))]));
    document.title = "Tilewright: " + told.title;
  }

  function complain(words) {
    place("error").textContent = words;
    place("error").hidden = !words;
  }

  async function look() {
    window.clearTimeout(timer);
    const job = decodeURIComponent(window.location.hash.slice(1));
    const address = job ? "api/jobs/" + encodeURIComponent(job) : "api/jobs";
    try {
      const headers = versions.has(address) ? { "If-None-Match": versions.get(address) } : {};
      const answer = await fetch(address, { headers, cache: "no-store" });
      if (answer.status !== 304) {
        const told = await answer.json();
        if (!answer.ok) throw new Error(told.error);
        versions.clear();
        versions.set(address, answer.headers.get("ETag") || "");
        place("all").hidden = Boolean(job);
        place("one").hidden = !job;
        (job ? showOne : showAll)(told);
        document.documentElement.dataset.shown = job || "all";
      }
      complain("");
    } catch (error) {
      complain(error instanceof TypeError ? "the server does not answer: is `tilewright watch` running?"
                                          : error.message);
    }
    timer = window.setTimeout(look, PAUSE);
  }

  window.addEventListener("hashchange", () => { versions.clear(); look(); });
  look();
})();
