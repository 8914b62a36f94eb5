// Bundle what the report draws with: node .ci/plot.mjs FOLDER, where npm may install into FOLDER.
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const PLOT = "0.6.17";
const ESBUILD = "0.28.2";
const WANTED = ["plot", "dot", "link", "frame"];
const PAGE = new URL("../src/flipmeter/show/page/", import.meta.url);
const folder = process.argv[2];

execFileSync("npm", ["install", "--silent", "--no-audit", "--no-fund", "--prefix", folder,
  `@observablehq/plot@${PLOT}`, `esbuild@${ESBUILD}`], { stdio: "inherit" });
const entry = join(folder, "entry.js");
writeFileSync(entry, `export { ${WANTED.join(", ")} } from "@observablehq/plot";\n`);
const out = join(folder, "plot.js");
execFileSync(join(folder, "node_modules/.bin/esbuild"), [entry, "--bundle", "--minify", "--format=iife",
  "--global-name=Plot", "--charset=ascii", "--legal-comments=none", `--outfile=${out}`, `--metafile=${out}.json`]);

const inputs = Object.keys(JSON.parse(readFileSync(`${out}.json`, "utf8")).inputs);
const names = [...new Set(inputs.map((path) => path.match(/.*node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean))].sort();
const about = names.map((name) => {
  const at = join(folder, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(at, "package.json"), "utf8"));
  const file = readdirSync(at).find((one) => /^licen[cs]e/i.test(one));
  return { name, version, license, text: file ? readFileSync(join(at, file), "utf8").trim() : "" };
});
const head = `/* Observable Plot ${PLOT} and what it needs, bundled by .ci/plot.mjs; licences: plot.LICENSE */\n`;
writeFileSync(new URL("plot.js", PAGE), head + readFileSync(out, "utf8"));
const licences = about.map((one) => `${one.name} ${one.version} (${one.license})\n\n${one.text}`);
writeFileSync(new URL("plot.LICENSE", PAGE), licences.join(`\n\n${"-".repeat(80)}\n\n`) + "\n");
