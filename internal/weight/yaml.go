package weight

// node is the memory of one node of YAML: the parser's, and that of the tree that it becomes.
const node = 320

// YAML returns ErrTooHeavy when YAML text could take more memory than most as a tree. It
// counts the characters that begin a node: those of flow collections, and the "- ", ": " and
// "? " of block collections. They also count in quoted and literal text, where they begin
// nothing; a comma counts once a flow collection may have begun. What aliases make of the tree when it is written out is for the caller to bound.
func YAML(data []byte, most int64) error {
	s := &scale{most}
	if err := s.add(2 * len(data)); err != nil {
		return err
	}
	flow := false // lines with commas, as in a ConfigMap of a table, have none
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
		if err := s.add(node); err != nil {
			return err
		}
	}
	return nil
}

// Aliases counts what looks like an alias in YAML text.
func Aliases(data []byte) (n int) {
	for i, c := range data {
		if c == '*' && i+1 < len(data) && data[i+1] > ' ' && (i == 0 || data[i-1] <= ' ' || data[i-1] == ',' || data[i-1] == '[' || data[i-1] == '{') {
			n++
		}
	}
	return n
}
