package redaction

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Mark is written in place of a secret.
const Mark = "REDACTED"

// secretName matches the names of fields, variables and flags whose values are secrets.
const secretName = `(?:pass(?:word|wd|phrase|code)|secret|token|credential|authorization|cookie|session[-_]?id|api[-_]?key|` +
	`(?:access|account|client|encryption|host|master|pass|private|session|shared|signing|ssh|storage)[-_]?key|key[-_]?data|` +
	`(?-i:[a-z](?:Pass|Pwd|Psk))\b|(?:\b|_)(?:pass|pwd|auth|psk)(?:\b|_))`

// These are parts of the expressions for the values of such names.
const (
	fullName = `[\w.\-]*` + secretName + `[\w.\-]*`
	// quoted matches a value in quotation marks or brackets. The first alternative is a string of JSON in a string of JSON.
	quoted = `\\"(?:[^"\\]|\\\\\\"|\\\\|\\[^"\\])*\\"|\\+"[^"\\]*\\*"|"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|\[[^\]]*\]`
	equals = `\s*[:=]+>?\s*`
)

// A rule finds secrets of one kind. The replacement keeps the parts that a reader needs to
// understand the text.
type rule struct {
	kind, with string
	find       *regexp.Regexp
}

// rules returns the rules for texts. Rules that match several words come before the rules that match one word.
func rules() []rule {
	one := func(kind, with, expr string) rule { return rule{kind, with, regexp.MustCompile(expr)} }
	return []rule{
		one("PEM block", Mark, `(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|$)`),
		// The beginning of a PEM block may be cut off. The last line of a block is shorter than its other lines.
		one("PEM block", Mark, `(?:[^\n]*[A-Za-z0-9+/=]{40,}[^\n]*\n)*(?:[^\n]*\n)?[^\n]*-----END [A-Z0-9 ]+-----`),
		one("PEM block", Mark, `LS0tLS1CRUdJTi[A-Za-z0-9+/=_\-]*`), // in base64
		one("authorization", "${1} "+Mark, `(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9._~+/=-]{6,}`),
		one("authorization", "${1}"+Mark, `(?i)((?:authorization|cookie)\\*["']?`+equals+`)(?:`+quoted+`|[^\n"]+)`),
		one("password in a URL", "${1}"+Mark+"@", `([A-Za-z][A-Za-z0-9+.-]*://)[^\s/"'<>]*@`),
		one("query of a URL", "${1}?"+Mark, `([A-Za-z][A-Za-z0-9+.-]*://[^\s?"'<>\\]+)\?[^\s"'<>\\]+`),
		// A digest in the name of an image is not a host: name:tag@sha256:...
		one("password before a host", "${1}"+Mark+"${2}", `([\w.+\-]+:)[^\s:@/"'<>]+(@(?:[^s\s]|s[^h]|sh[^a]))`),
		one("value of a secret's name", "${1}"+Mark+"${2}", `(?i)(<[^<>\n]*`+secretName+`[^<>\n]*>)[^<]+(</)`),
		one("value of a secret's name", "${1}"+Mark, `(?i)(\bname\\*["']?\s*:\s*\\*["']?`+fullName+
			`\\*["']?\s*,?\s*\\*["']?value\\*["']?\s*:\s*)`+
			`(?:`+quoted+`|[^\n]+)`),
		one("value of a secret's name", "${1}"+Mark+"\n", `(?i)(`+fullName+`["']?\s*:\s*[|>][-+0-9]*[ \t]*\n)(?:[ \t]+[^\n]*(?:\n|$)|\n)+`),
		one("value of a secret's name", "${1}"+Mark, `(?i)(`+fullName+`\\*["']`+equals+`)(?:`+quoted+`|[^\s,;}\]]+)`),
		one("value of a secret's name", "${1}"+Mark, `(?i)(`+fullName+equals+`(?:[!&]\S+[ \t]+)?)(?:`+quoted+`|\S+)`),
		one("value of a secret's flag", "${1}"+Mark, `(?i)(--?[\w\-]*`+secretName+`[\w\-]*\\*["'](?:\s*,\s*|\s+))(?:`+quoted+`)`),
		one("value of a secret's flag", "${1}"+Mark, `(?i)(--?[\w\-]*`+secretName+`[\w\-]*\s+)(?:"[^"]*"|'[^']*'|[^\s-]\S*)`),
		one("token", Mark, `\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
		one("token", Mark, `\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{15,}|A[KS]IA[A-Z0-9]{16}|`+
			`xox[abeprs]-[\w-]{10,}|sk-[\w-]{20,}|AIza[\w-]{30,})`),
		one("bootstrap token", Mark, `\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
		one("password hash", Mark, `\$(?:1|2[abxy]|5|6|7|y|argon2id?)\$[^\s"'\\]+`),
	}
}

// A Redactor removes secrets and counts them. It is not safe for concurrent use.
type Redactor struct {
	rules  []rule
	name   *regexp.Regexp // of a field whose value is a secret
	flag   *regexp.Regexp // an argument whose next argument is a secret
	plain  *regexp.Regexp // of a field that the pattern name matches too, but whose value is not a secret
	counts map[string]int
}

// New returns a Redactor.
func New() *Redactor {
	return &Redactor{
		rules: rules(), counts: map[string]int{}, name: regexp.MustCompile(`(?i)` + secretName + `|header`),
		flag:  regexp.MustCompile(`(?i)^--?[\w\-]*` + secretName + `[\w\-]*$`),
		plain: regexp.MustCompile(`(?:Policy|Strategy|Period|Frequency|Dir|File|Path|Detection|Timeout)$`),
	}
}

// Text returns a text without secrets.
func (r *Redactor) Text(s string) string {
	for _, rule := range r.rules {
		s = rule.find.ReplaceAllStringFunc(s, func(found string) string {
			out := rule.find.ReplaceAllString(found, rule.with)
			if out != found {
				r.counts[rule.kind]++
			}
			return out
		})
	}
	return s
}

// Value returns a decoded JSON value without secrets. It changes maps and lists in place. The values of fields with a secret's name are
// removed, except numbers and booleans. The values of variables and arguments with such a name, and the data of a Secret, are removed
// too. All other strings, and the names of fields, are redacted as texts.
func (r *Redactor) Value(v any) any {
	switch v := v.(type) {
	case string:
		return r.Text(v)
	case []any:
		for i := range v {
			if i > 0 && isFilled(v[i]) && isNamed(r.flag, v[i-1]) {
				r.Remove("value of a secret's flag")
				v[i] = Mark
			}
			v[i] = r.Value(v[i])
		}
	case map[string]any:
		r.removeNamed(v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			value := v[name]
			if r.name.MatchString(name) && !r.plain.MatchString(name) && isFilled(value) {
				r.Remove("field " + r.Text(name))
				value = Mark
			}
			if clean := r.Text(name); clean != name {
				delete(v, name)
				name = clean
			}
			v[name] = r.Value(value)
		}
	}
	return v
}

// removeNamed removes secrets in fields with harmless names: the value of a variable with a secret's name, and the
// data of a Secret.
func (r *Redactor) removeNamed(object map[string]any) {
	remove := func(kind string, fields ...string) {
		for _, field := range fields {
			if isFilled(object[field]) {
				r.Remove(kind)
				object[field] = Mark
			}
		}
	}
	if isNamed(r.name, object["name"]) {
		remove("variable of a secret's name", "value")
	}
	if object["kind"] == "Secret" {
		remove("data of a Secret", "data", "stringData")
	}
}

func isNamed(names *regexp.Regexp, v any) bool {
	name, ok := v.(string)
	return ok && names.MatchString(name)
}

// isFilled reports whether a value may contain a secret.
func isFilled(v any) bool {
	switch v := v.(type) {
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return false
}

// Remove counts a secret that the caller has left out.
func (r *Redactor) Remove(kind string) { r.counts[kind]++ }

// Counts returns how many secrets of each kind were removed since the last call.
func (r *Redactor) Counts() map[string]int {
	counts := r.counts
	r.counts = map[string]int{}
	return counts
}

// Before replaces the part of s after the separator by Mark, and counts it as a secret of the given kind.
func (r *Redactor) Before(s, separator, kind string) string {
	before, rest, found := strings.Cut(s, separator)
	if !found || rest == "" {
		return s
	}
	r.Remove(kind)
	return before + separator + Mark
}
