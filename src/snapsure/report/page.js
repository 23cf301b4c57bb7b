// Shows what the page's data say. All numbers were computed before; here they are looked up.
const data = JSON.parse(document.getElementById("data").textContent);
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
  };
}

async function draw() {
  for (const part of document.querySelectorAll("[data-charts]")) {
    const id = part.dataset.charts;
    for (const place of part.querySelectorAll("[data-chart]")) {
      const name = place.dataset.chart;
      const options = { actions: false, renderer: "svg", config: theme() };
      const { view } = await window.vegaEmbed(place, data[id].charts[name], options);
      views.set(`${id} ${name}`, view);
    }
    if (part.dataset.chapter) update(part);
  }
  document.body.dataset.ready = "yes";
}

const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)} %`;

function update(chapter) {
  const id = chapter.dataset.chapter;
  const part = (role) => chapter.querySelector(`[data-role="${role}"]`);
  const each = data[id].positions[part("score").value];
  const steps = Number(part("coverage").max);
  const i = Number(part("coverage").value) - 1;
  const asked = percent((i + 1) / steps);
  part("asked").textContent = asked;
  part("coverage").setAttribute("aria-valuetext", `${asked} of the points`);
  part("which").textContent = part("score").selectedOptions[0].textContent;
  part("coverage-shown").textContent = percent(each.coverage[i]);
  part("theta").textContent = each.shown[i];
  part("theta").dataset.whole = String(each.theta[i]);
  part("risk").textContent = percent(each.risk[i], 2);
  part("interval").textContent = `${percent(each.low[i], 2)} … ${percent(each.high[i], 2)}`;
  part("handed").textContent = each.handed[i].toLocaleString("en-US");
  part("bound").textContent = percent(each.bounds[part("delta").value][i], 2);
  if (part("strange")) part("strange").textContent = percent(each.strange[i]);
  // One sentence when the hand rests, not six at every step.
  clearTimeout(chapter.speech);
  chapter.speech = setTimeout(() => {
    const [accepted, risk, bound] = ["coverage-shown", "risk", "bound"].map((role) => part(role).textContent);
    part("status").textContent = `${accepted} accepted, risk ${risk}, at most ${bound}`;
  }, 600);
  const view = views.get(`${id} rc`);
  if (view) view.signal("coverage", each.coverage[i]).runAsync();
}

async function copy(chapter) {
  let done = true;
  const button = chapter.querySelector('[data-role="copy"]');
  const number = chapter.querySelector('[data-role="theta"]');
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

for (const chapter of document.querySelectorAll("[data-chapter]")) {
  chapter.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  for (const role of ["score", "delta", "coverage"]) {
    chapter.querySelector(`[data-role="${role}"]`).addEventListener("input", () => update(chapter));
  }
  chapter.querySelector('[data-role="copy"]').addEventListener("click", () => copy(chapter));
  update(chapter);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
// A chart in what was folded has no width until it is opened.
const fit = () => dispatchEvent(new Event("resize"));
for (const details of document.querySelectorAll("details:has([data-chart])")) {
  details.addEventListener("toggle", fit);
}
// A link to a folded chapter opens it.
function open() {
  const chapter = location.hash && document.getElementById(location.hash.slice(1));
  if (chapter && chapter.matches("[data-chapter]")) {
    const details = chapter.querySelector("details.chapter");
    if (details) details.open = true;
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
