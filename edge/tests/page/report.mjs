// Tests a report of `sluice lab all` in a browser: three widths, two themes and print, with all details open.
//
// Usage: node report.mjs PAGE BROWSER SCREENSHOTS
//   PAGE         path of the report
//   BROWSER      path of Chromium
//   SCREENSHOTS  folder that gets pictures

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [file, browserPath, screenshots] = process.argv.slice(2);
const AXE = fs.readFileSync(new URL("./node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const WIDTHS = [360, 768, 1400];
const THEMES = ["light", "dark"];

const ok = (name) => console.log(`ok ${name}`);

/** Opens the report. Requests for anything else, and errors in the console, end the test. */
async function open(browser, options) {
  const page = await (await browser.newContext(options)).newPage();
  page.errors = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) page.errors.push(message.text()); });
  page.on("pageerror", (error) => page.errors.push(error.stack));
  page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) page.errors.push(`a request for ${request.url()}`); });
  await page.goto(pathToFileURL(path.resolve(file)).href);
  return page;
}

async function axe(page, what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.failureSummary}`).join("; ")}`);
  assert.deepEqual(found, [], `axe, ${what}`);
}

/** The names of elements of a chart that are outside of it, or overlap one another. */
const charts = (page) => page.evaluate(() => {
  const found = [];
  for (const svg of document.querySelectorAll("figure > svg")) {
    const { left, right } = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    for (const [name, box] of texts) {
      if (box.left < left - 1 || box.right > right + 1) found.push(`${svg.getAttribute("aria-label")}: ${name} is cut`);
      for (const [other, near] of texts) {
        const overlaps = near.left < box.right - 1 && box.left < near.right - 1 && near.top < box.bottom - 3 && box.top < near.bottom - 3;
        if (name < other && overlaps) found.push(`${svg.getAttribute("aria-label")}: ${name} overlaps ${other}`);
      }
    }
  }
  return found;
});

async function look(browser, width, colorScheme) {
  const what = `${width} pixels, ${colorScheme}`;
  const page = await open(browser, { viewport: { width, height: 1000 }, colorScheme });
  await page.screenshot({ path: path.join(screenshots, `report-${width}-${colorScheme}.png`), fullPage: true });
  assert.deepEqual(await charts(page), [], what);
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(over, 0, `${what}: the page is wider than the window`);
  await axe(page, what);
  assert.deepEqual(page.errors, [], what);
  ok(what);
}

/** The file to download is the record within the page. */
async function record(browser) {
  const page = await open(browser, { acceptDownloads: true });
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("a[download]")]);
  assert.equal(download.suggestedFilename(), "run.json");
  const downloaded = JSON.parse(fs.readFileSync(await download.path(), "utf8"));
  const embedded = JSON.parse(await page.textContent("#data"));
  assert.deepEqual(downloaded, embedded);
  assert.ok(embedded.steps.length > 0);
  ok("download");
}

async function print(browser) {
  const page = await open(browser, { colorScheme: "dark" });
  await page.emulateMedia({ media: "print" });
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(ground, "rgb(255, 255, 255)");
  await page.pdf({ path: path.join(screenshots, "report.pdf"), format: "A4" });
  assert.deepEqual(page.errors, []);
  ok("print");
}

fs.mkdirSync(screenshots, { recursive: true });
const profile = fs.mkdtempSync(path.join(os.tmpdir(), "report-"));
const browser = await chromium.launch({ executablePath: browserPath, args: FLAGS, tracesDir: profile, downloadsPath: profile });
try {
  for (const width of WIDTHS) for (const theme of THEMES) await look(browser, width, theme);
  await record(browser);
  await print(browser);
} finally {
  await browser.close();
  fs.rmSync(profile, { recursive: true, force: true });
}
