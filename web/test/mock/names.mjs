// Names as an attacker or an accident could produce them.
export const hostile = [
  `<img src=x onerror="document.title='pwned'">`,
  `"><script>document.title='pwned'</script>`,
  "\u202Ereversed\u202C end",
  `a${"very-".repeat(60)}long-name`,
  "العربية name עברית",
  "{{constructor.constructor('alert(1)')()}} & &lt;b&gt;",
  "zero\u200bwidth\u0007bell",
];
