package translate

import "strings"

// Expand replaces $(NAME) with the value of the variable NAME. $$ stands for a $. An unknown name is not replaced.
// https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
func Expand(s string, value func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i:], ')')
			if end < 0 {
				b.WriteString("$(")
				i++
				continue
			}
			if v, ok := value(s[i+2 : i+end]); ok {
				b.WriteString(v)
			} else {
				b.WriteString(s[i : i+end+1])
			}
			i += end
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}

func expandAll(in []string, value func(string) (string, bool)) []string {
	var out []string
	for _, s := range in {
		out = append(out, Expand(s, value))
	}
	return out
}
