module.exports = {
  name: "check_email",
  description: "Tell whether a text has the form of an e-mail address",
  parameters: {
    type: "object",
    properties: { address: { type: "string", description: "the text" } },
    required: ["address"],
  },
  execute: ({ address }) => ({ address, valid: /^[^\s@]+@[^\s@]+\.[^\s@]{2,}$/.test(address) }),
};
