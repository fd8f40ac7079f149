/**
 * @param {string} file - the file's path
 * @param {number} [line=1] - the line of the quotation
 */
function execute({ file, line = 1 }) {
  return `[${file}, line ${line}]`;
}

module.exports = { name: "cite", description: "Write a source in one form", execute };
