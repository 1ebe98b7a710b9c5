// Perfetto's trace processor, as its page runs it in a worker: `node trace_processor.mjs DIR < requests > replies`, both of them
// TraceProcessorRpcStream (protos/perfetto/trace_processor/trace_processor.proto). DIR has engine_bundle.js and the WebAssembly.

import { readFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const failed = (error) => {
  writeSync(2, `${error?.stack ?? error}`.slice(0, 4000)); // without the line of the bundle, which is one of all of it
  process.exit(1);
};
process.on("uncaughtException", failed);
process.on("unhandledRejection", failed);

const directory = process.argv[2];

class XMLHttpRequest {
  open(method, name) {
    this.response = new Uint8Array(readFileSync(join(directory, name))).buffer;
  }
  send() {}
}

const worker = { location: { href: "http://localhost/engine_bundle.js" } };
const quiet = { ...console, log() {}, warn() {} };
const around = { self: worker, WorkerGlobalScope: class {}, XMLHttpRequest, console: quiet, process: undefined };
const code = readFileSync(join(directory, "engine_bundle.js"), "utf8");
new Function(...Object.keys(around), code)(...Object.values(around));

const replies = [];
const port = { postMessage: (reply) => replies.push(Buffer.from(reply)) };
worker.onmessage({ data: port });
setTimeout(() => {
  // What the module does when it is ready was done by now.
  port.onmessage({ data: new Uint8Array(readFileSync(0)) });
  const all = Buffer.concat(replies);
  for (let at = 0; at < all.length; ) at += writeSync(1, all, at);
  process.exit(0);
});
