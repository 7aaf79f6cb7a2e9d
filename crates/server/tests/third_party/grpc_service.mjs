// A gRPC service on a free port, which it prints. Every order counts; `item` says what becomes of it.

import { Orders, grpc } from "./grpc_orders.mjs";

let orders = 0;

const receipt = (order) => ({ text: `${order.count} ${order.item}`, number: ++orders });

function place(call, callback) {
  const { item } = call.request;
  if (item === "nothing") {
    const metadata = new grpc.Metadata();
    metadata.set("reason", "sold out");
    return callback({ code: grpc.status.NOT_FOUND, details: "there is no such item: 100 %", metadata });
  }
  const trailer = new grpc.Metadata();
  trailer.set("seen-key", String(call.metadata.get("idempotency-key")));
  trailer.set("seen-operation", String(call.metadata.get("semel-operation-id").length));
  callback(null, receipt(call.request), trailer);
}

function watch(call) {
  for (let n = 0; n < call.request.count; n++) {
    call.write(receipt(call.request));
  }
  call.end();
}

function placeAll(call, callback) {
  let count = 0;
  call.on("data", (order) => (count += order.count));
  call.on("end", () => callback(null, receipt({ item: "in all", count })));
}

// Each order is answered before the next one is sent.
function haggle(call) {
  call.on("data", (order) => call.write(receipt(order)));
  call.on("end", () => call.end());
}

const server = new grpc.Server();
server.addService(Orders.service, { Place: place, Watch: watch, PlaceAll: placeAll, Haggle: haggle });
server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(port);
});
