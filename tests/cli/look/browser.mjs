// A Chromium that does what it is told: one JSON object a line on stdin, one answer a line on stdout.
// browser.mjs CHROMIUM: {open, dark, width, height} {eval} {wait} {click} {type, text} {press} {shot} {axe} {errors}
import {readFileSync} from 'node:fs';
import {createInterface} from 'node:readline';
import {createRequire} from 'node:module';
import puppeteer from 'puppeteer-core';

const waitMaxMs = 120_000;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await puppeteer.launch({executablePath: process.argv[2], headless: true, protocolTimeout: 2 * waitMaxMs,
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--force-color-profile=srgb']});
const page = await browser.newPage();
page.setDefaultTimeout(waitMaxMs);
let errors = [];
page.on('console', (message) => { if (message.type() === 'error') errors.push(message.text()); });
page.on('pageerror', (error) => errors.push(String(error)));
page.on('dialog', (dialog) => { errors.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
await (await page.createCDPSession()).send('Browser.setDownloadBehavior',
                                           {behavior: 'allow', downloadPath: process.argv[3]});

async function run(task) {
  if (task.open) {
    await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: task.dark ? 'dark' : 'light'}]);
    await page.setViewport({width: task.width || 1280, height: task.height || 900});
    const answer = await page.goto(task.open);
    return answer && answer.status();
  }
  if (task.eval) return page.evaluate(task.eval);
  if (task.wait) return (await page.waitForFunction(task.wait, {polling: 50})).jsonValue();
  if (task.click) return page.click(task.click);
  if (task.type) return page.type(task.type, task.text);
  if (task.press) return page.keyboard.press(task.press);
  if (task.shot) return void await page.screenshot({path: task.shot, fullPage: true});
  if (task.axe) {
    await page.evaluate(axe);
    const found = await page.evaluate(() => window.axe.run(document, {resultTypes: ['violations']}));
    return found.violations.map(({id, impact, nodes}) => ({id, impact, nodes: nodes.map((node) => node.html)}));
  }
  if (task.errors) { const told = errors; errors = []; return told; }
  throw new Error(`unknown: ${JSON.stringify(task)}`);
}

for await (const line of createInterface({input: process.stdin})) {
  let answer;
  try {
    answer = {value: await run(JSON.parse(line)) ?? null};
  } catch (error) {
    answer = {error: String(error)};
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}
await browser.close();
