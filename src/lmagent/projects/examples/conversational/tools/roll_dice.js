// The parameters are read from the code: sides with its default, and count.
module.exports = {
  name: "roll_dice",
  description: "Roll dice and return the numbers",
  execute: async ({ sides = 6, count = 1 }) => {
    if (sides < 2 || count < 1 || count > 100) return { error: "2 or more sides, and 1 to 100 dice" };
    return { rolled: Array.from({ length: count }, () => 1 + Math.floor(Math.random() * sides)) };
  },
};
