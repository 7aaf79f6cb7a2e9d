// The Node peers' handler with nothing around it: their floor.
"use strict";

const { serve } = require("./handler");

serve([], []);
