// tools/calculator.js
module.exports = {
  name: "calculator",
  description: "Perform mathematical calculations",
  execute: async (params) => {
    const { expression } = params;
    try {
      // Note: Use safe evaluation for production
      return { result: eval(expression) };
    } catch (error) {
      return { error: "Invalid calculation" };
    }
  }
};
