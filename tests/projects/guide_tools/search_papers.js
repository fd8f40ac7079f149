// tools/search_papers.js
module.exports = {
  name: "search_papers",
  description: "Search for academic papers on a given topic",
  execute: async (params) => {
    const { query, limit = 5 } = params;
    
    // In production, integrate with APIs like Semantic Scholar or arXiv
    return {
      results: [
        { title: `Research on ${query}`, year: 2024, abstract: "Sample abstract..." }
      ]
    };
  }
};
