const WORDS = ["lantern", "tide", "orchard", "brass", "ferry", "snow", "harbour", "clock", "fox", "letter"];

module.exports = {
  name: "pick_words",
  description: "Pick words at random to begin a story with",
  execute: ({ count = 3 }) => [...WORDS].sort(() => Math.random() - 0.5).slice(0, count),
};
