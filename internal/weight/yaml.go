package weight

// node is the memory of one YAML node in the parser and in the resulting tree together.
const node = 320

// YAML returns ErrTooHeavy if YAML text may take more than limit bytes of memory as a tree. It
// counts the characters that begin a node: those of flow collections, and the "- ", ": " and "? "
// of block collections. They are counted in quoted and literal text as well. A comma is counted
// only after a character that may begin a flow collection. The expansion of aliases is not counted;
// the caller has to bound it.
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
		if err := s.add(node); err != nil {
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
