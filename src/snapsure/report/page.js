// Shows the page's data. Every number is computed before; here it is looked up.
const views = new Map();

function theme() {
  const style = getComputedStyle(document.documentElement);
  const [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
  return {
    background: "transparent",
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: { labelColor: ink, titleColor: soft, gridColor: line, domainColor: line, tickColor: line },
    legend: { labelColor: ink, labelLimit: 240 },
    rule: { color: ink },
    text: { color: ink },
  };
}

async function draw() {
  for (const place of document.querySelectorAll("[data-chart]")) {
    const spec = JSON.parse(place.parentElement.querySelector("script").textContent);
    const options = { actions: false, renderer: "svg", config: theme() };
    views.set(place, (await window.vegaEmbed(place, spec, options)).view);
  }
  document.querySelectorAll("form.decide").forEach(update);
  document.body.dataset.ready = "yes";
}

const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)} %`;
const data = new Map();
for (const form of document.querySelectorAll("form.decide")) {
  data.set(form, JSON.parse(form.querySelector("script").textContent));
}

function update(form) {
  const part = (role) => form.querySelector(`[data-role="${role}"]`);
  const each = data.get(form)[part("score").value];
  const i = Number(part("coverage").value) - 1;
  part("coverage").setAttribute("aria-valuetext", `${percent(each.coverage[i])} of the answers`);
  part("coverage-shown").textContent = percent(each.coverage[i]);
  part("theta").textContent = each.written[i];
  part("theta").dataset.whole = String(each.theta[i]);
  part("risk").textContent = percent(each.risk[i], 2);
  part("interval").textContent = `${percent(each.low[i], 2)} … ${percent(each.high[i], 2)}`;
  part("reviewed").textContent = each.reviewed[i].toLocaleString("en-US");
  part("bound").textContent = percent(each.bounds[part("delta").value][i], 2);
  const recommended = i + 1 === Number(form.dataset.start) && part("score").selectedIndex === 0;
  if (part("promise")) part("promise").textContent = recommended ? "(here)" : "(not here)";
  part("reset").disabled = recommended;
  if (part("strange")) part("strange").textContent = percent(each.strange[i]);
  // One sentence when the hand rests, not six at every step.
  clearTimeout(form.speech);
  form.speech = setTimeout(() => {
    const [accepted, risk, bound] = ["coverage-shown", "risk", "bound"].map((role) => part(role).textContent);
    part("status").textContent = `${accepted} accepted, risk ${risk}, at most ${bound}`;
  }, 600);
  for (const name of ["risk", "difference"]) {
    const view = views.get(form.parentElement.querySelector(`[data-chart="${name}"]`));
    if (view) view.signal("coverage", each.coverage[i]).runAsync();
  }
}

async function copy(form) {
  let done = true;
  const button = form.querySelector('[data-role="copy"]');
  const number = form.querySelector('[data-role="theta"]');
  const text = number.dataset.whole;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page opened from a file may not write to the clipboard: select the whole number instead.
    number.textContent = text;
    const range = document.createRange();
    range.selectNodeContents(number);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Press Ctrl+C";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

for (const form of data.keys()) {
  const part = (role) => form.querySelector(`[data-role="${role}"]`);
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const role of ["score", "delta", "coverage"]) {
    part(role).addEventListener("input", () => update(form));
  }
  part("copy").addEventListener("click", () => copy(form));
  part("reset").addEventListener("click", () => {
    part("score").selectedIndex = 0;
    part("coverage").value = form.dataset.start;
    update(form);
  });
  update(form);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
// A folded chart has no width until it is opened.
const fit = () => dispatchEvent(new Event("resize"));
for (const details of document.querySelectorAll("details:has([data-chart])")) {
  details.addEventListener("toggle", fit);
}
// A link to a folded chapter opens it.
function open() {
  const chapter = location.hash && document.getElementById(location.hash.slice(1));
  const details = chapter && chapter.querySelector(":scope > details.chapter");
  if (details) {
    details.open = true;
    chapter.scrollIntoView();
  }
}
addEventListener("hashchange", open);
open();
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  fit();
});
draw();
