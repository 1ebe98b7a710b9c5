// Whether JSON is what a JSON schema asks for: `node schema.mjs MODULES SCHEMA < document`, silent if it is.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, schema] = process.argv.slice(2);
const Ajv = createRequire(`${modules}/`)("ajv");
const check = new Ajv({ strict: false, allErrors: true }).compile(JSON.parse(readFileSync(schema, "utf8")));
if (!check(JSON.parse(readFileSync(0, "utf8")))) {
  console.error(JSON.stringify(check.errors.slice(0, 5)));
  process.exit(1);
}
