package redaction_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/redaction"
)

// TestHiddenForms checks secrets in the forms of other programs: shells, YAML, XML, connection strings, headers and logs that are cut off.
func TestHiddenForms(t *testing.T) {
	const b64 = "TUlJRXZRSUJBREFOQmdrcWhraUc5dzBCQVFFRkFBU0NCS2N3Z2dTakFnRUFBb0lC"
	for _, in := range []string{
		"DB_PASS=" + hidden, "pass: " + hidden, "MYSQL_PWD=" + hidden + " mysql", "_auth=" + hidden, "REGISTRY_AUTH=" + hidden, "WIFI_PSK=" + hidden, "passkey: " + hidden, "encryptionKey=" + hidden,
		"Authorization: Token " + hidden, "authorization: ApiKey a=b, sig=" + hidden, `"Authorization":"Custom x,` + hidden + `"`, "Proxy-Authorization: Basic " + hidden,
		"Cookie: a=b; session=" + hidden, "Set-Cookie: sid=x; v=" + hidden,
		"password=a,b;" + hidden + "]x", "password => " + hidden, "password := " + hidden,
		"password: |\n  first line\n  " + hidden + "\nuser: x", "token: >-\n    a\n\n    " + hidden + "\n", "password: !!str " + hidden, "password: &a " + hidden,
		"password: 'it''s " + hidden + "'", `{\"token\":\"a\\nb, ` + hidden + `\"}`,
		"<password>" + hidden + "</password>", `<entry key="dbPassword">` + hidden + "</entry>",
		`["--token","` + hidden + `"]`, `["--token", "` + hidden + `"]`, `args=[--password ` + hidden + `]`,
		`{"name":"DB_PASSWORD","value":"` + hidden + `"}`, "- name: DB_PASSWORD\n  value: " + hidden + "\n",
		"user:" + hidden + "@tcp(10.0.0.1:3306)/db", "pull u:" + hidden + "@registry.example/app failed",
		b64 + "\n" + b64 + hidden + "\nAA" + hidden + "\n-----END PRIVATE KEY-----\n",
		"tls.key: LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t" + hidden,
	} {
		if got := redaction.New().Text(in); strings.Contains(got, hidden) {
			t.Errorf("%s\ngives %s", in, got)
		}
	}
	for _, in := range []string{
		"image registry:5000/app:v1@sha256:0123456789abcdef is missing", "docker.io/library/app:1.2@sha256:0123", "compass=north", "bypass: yes", "pull of app:v1 at 10:30", "the pass of the probe", "mail admin@example.com about it", "passed=3",
		"pod default/web: 2026-11-27T10:00:00Z islet[1]: started",
	} {
		if got := redaction.New().Text(in); got != in {
			t.Errorf("%s\ngives %s", in, got)
		}
	}
}

// TestHiddenObjects checks the objects of Kubernetes that contain values of a secret under a harmless name.
func TestHiddenObjects(t *testing.T) {
	for _, in := range []string{
		`{"env": [{"name": "DB_PASSWORD", "value": "` + hidden + `"}]}`, `{"args": ["--token", "` + hidden + `"]}`, `{"command": ["run", "--password", "` + hidden + `", "x"]}`,
		`{"kind": "Secret", "data": {"a": "` + hidden + `"}}`, `{"kind": "Secret", "stringData": {"a": "` + hidden + `"}}`, `{"auths": {"r.example": {"auth": "` + hidden + `"}}}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		r := redaction.New()
		if out, _ := json.Marshal(r.Value(v)); strings.Contains(string(out), hidden) || len(r.Counts()) == 0 {
			t.Errorf("%s\ngives %s", in, out)
		}
	}
}
