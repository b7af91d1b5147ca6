package inputweight

// yamlNode is the memory in bytes of a YAML node in the parser and in the resulting tree together.
const yamlNode = 320

// YAML returns ErrTooHeavy if a YAML text, decoded as a tree, may take more than limit bytes of memory. It counts the
// characters that begin a node: "[", "{" and "," of flow collections, and "- ", ": " and "? " of block collections.
// It also counts these characters in quoted and literal text. It counts commas only after the first "[" or "{" of the
// text. It does not count the expansion of aliases; the caller must limit their number.
func YAML(data []byte, limit int64) error {
	s := &scale{limit}
	if err := s.add(2 * len(data)); err != nil {
		return err
	}
	flow := false // outside flow collections, a comma does not begin a node, as in a ConfigMap with a CSV table
	for i, c := range data {
		switch c {
		case '-', ':', '?':
			if i+1 < len(data) && data[i+1] > ' ' {
				continue
			}
		case '[', '{':
			flow = true
		case ',':
			if !flow {
				continue
			}
		default:
			continue
		}
		if err := s.add(yamlNode); err != nil {
			return err
		}
	}
	return nil
}

// Aliases returns an upper estimate of the number of aliases in YAML text.
func Aliases(data []byte) (n int) {
	for i, c := range data {
		if c != '*' || i+1 >= len(data) || data[i+1] <= ' ' {
			continue
		}
		if i == 0 || data[i-1] <= ' ' || data[i-1] == ',' || data[i-1] == '[' || data[i-1] == '{' {
			n++
		}
	}
	return n
}
