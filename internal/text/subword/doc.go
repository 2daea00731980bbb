// Package subword cuts texts into the tokens of a model of language, by the tokenizer.json that models are published with: those whose
// model is WordPiece, as of BERT and most of the models that make sparse vectors, BPE, as of RoBERTa and ModernBERT, or Unigram, as of XLM-RoBERTa.
//
// # Contract
//
// A Tokenizer gives the numbers of the tokens of a text as the library of the file's origin does without special tokens; where it would give
// one of those for a piece of the text, an unknown word or the literal name of one, nothing stands here, because no document has weight for
// it. What a file asks for and the package does not know is refused when the file is read, by its name: never is a text cut in another way
// than the file says. A Tokenizer does not change, and is safe for concurrent use.
//
// A Store reads files of a folder when they are first asked for, keeps them, and reads them again when they have changed.
package subword
