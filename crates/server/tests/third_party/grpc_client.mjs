// Makes one call of the service at an address, and prints what came of it as one line of JSON:
// `node grpc_client.mjs ADDRESS CALL ITEM [KEY]`.

import { Orders, grpc } from "./grpc_orders.mjs";

const [address, kind, item, key] = process.argv.slice(2);
const client = new Orders(address, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
if (key) metadata.set("idempotency-key", key);
const options = { deadline: Date.now() + 20_000 };

const told = { receipts: [], code: null, details: null, trailers: {} };

const calls = {
  unary: (done) => {
    const call = client.Place({ item, count: 1 }, metadata, options, (error, receipt) => {
      if (receipt) told.receipts.push(receipt.text);
      if (receipt) told.number = receipt.number;
    });
    call.on("status", done);
  },
  server: (done) => {
    const call = client.Watch({ item, count: 3 }, metadata, options);
    call.on("data", (receipt) => told.receipts.push(receipt.text));
    call.on("error", () => {});
    call.on("status", done);
  },
  client: (done) => {
    const call = client.PlaceAll(metadata, options, (error, receipt) => {
      if (receipt) told.receipts.push(receipt.text);
    });
    call.on("status", done);
    for (let count = 1; count <= 4; count++) call.write({ item, count });
    call.end();
  },
  both: (done) => {
    const call = client.Haggle(metadata, options);
    let count = 1;
    call.on("data", (receipt) => {
      told.receipts.push(receipt.text);
      if (count < 5) call.write({ item, count: ++count });
      else call.end();
    });
    call.on("error", () => {});
    call.on("status", done);
    call.write({ item, count });
  },
};

calls[kind]((status) => {
  told.code = grpc.status[status.code];
  told.details = status.details;
  told.trailers = status.metadata.getMap();
  console.log(JSON.stringify(told));
  client.close();
});
