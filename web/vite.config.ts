import { defineConfig } from "vite";

// Hashes depend on contents alone, so the same lock file gives the same bytes on every machine.
export default defineConfig({
  base: "./",
  clearScreen: false,
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true,
    sourcemap: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 600,
    rolldownOptions: {
      output: {
        entryFileNames: "assets/[name]-[hash].js",
        chunkFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
        // Libraries lie apart from our code: an edit of ours leaves their files as they were.
        codeSplitting: {
          groups: [
            { name: "vendor-ui", test: /node_modules\/(preact|@preact)\// },
            { name: "vendor-chart", test: /node_modules\/uplot\// },
            { name: "vendor-editor", test: /node_modules\/(@codemirror|@lezer|style-mod|w3c-keyname|crelt|@marijn)\// },
          ],
        },
      },
    },
  },
});
