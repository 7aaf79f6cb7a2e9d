// The service of orders.proto, as the programs here load it.

import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const definition = loader.loadSync(new URL("orders.proto", import.meta.url).pathname, { defaults: true });

export const { Orders } = grpc.loadPackageDefinition(definition).shop;
export { grpc };
