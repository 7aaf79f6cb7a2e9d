import eslint from "@eslint/js";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(
  {
    ignores: [
      "dist",
      "node_modules",
      "tests/node_modules",
      "tests/built",
      "tests/page",
      "tests/readme",
      "tests/readme.mjs",
      "eslint.config.js",
    ],
  },
  eslint.configs.recommended,
  tseslint.configs.strictTypeChecked,
  tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: {
      parserOptions: { project: ["tsconfig.json", "tsconfig.node.json", "tests/tsconfig.json"] },
    },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      // It asks for `!`, which the strict rules forbid.
      "@typescript-eslint/non-nullable-type-assertion-style": "off",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      eqeqeq: ["error", "always", { null: "ignore" }],
    },
  },
);
