package sealed

import (
	"bytes"
	"strings"
	"testing"

	"filippo.io/age"
)

func testIdentity(t testing.TB) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func sealText(t testing.TB, json string, to ...*age.X25519Identity) []byte {
	t.Helper()
	s, err := ReadSecret([]byte(json))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, id := range to {
		lines = append(lines, id.Recipient().String())
	}
	list, err := Recipients("# nodes\n\n" + strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := Seal([]Secret{*s}, list)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const wifi = `{"kind":"Secret","metadata":{"name":"wifi","namespace":"default"},"type":"Opaque","data":{"b":"Yg==","a":"c2VjcmV0"}}`

// TestOnlyRecipientsOpen checks that each recipient can open a Secret, that another node cannot, and that the file does not contain it.
func TestOnlyRecipientsOpen(t *testing.T) {
	a, b, other := testIdentity(t), testIdentity(t), testIdentity(t)
	data := sealText(t, wifi, a, b)
	if bytes.Contains(data, []byte("c2VjcmV0")) || bytes.Contains(data, []byte("secret")) {
		t.Errorf("the secret is readable:\n%s", data)
	}
	docs, err := Parse(data)
	if err != nil || len(docs) != 1 || strings.Join(docs[0].Keys, " ") != "a b" || docs[0].Metadata.Name != "wifi" {
		t.Fatalf("%+v, %v", docs, err)
	}
	for _, id := range []*age.X25519Identity{a, b} {
		s, err := docs[0].Open(id)
		if err != nil || string(s.JSON) != wifi {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if s, err := docs[0].Open(other); err == nil {
		t.Errorf("another node reads %+v", s)
	}
}

// TestShownFieldsAreChecked checks that a document cannot show another name, type or key than its Secret has.
func TestShownFieldsAreChecked(t *testing.T) {
	id := testIdentity(t)
	good := string(sealText(t, wifi, id))
	for old, changed := range map[string]string{
		"name: wifi": "name: admin", "namespace: default": "namespace: kube-system", "type: Opaque": "type: other", "- a\n": "",
	} {
		docs, err := Parse([]byte(strings.Replace(good, old, changed, 1)))
		if err != nil {
			t.Errorf("%s: %v", changed, err)
			continue
		}
		if s, err := docs[0].Open(id); err == nil {
			t.Errorf("%q instead of %q is accepted: %+v", changed, old, s)
		}
	}
	two := good + "---\n" + good
	if docs, err := Parse([]byte(two)); err != nil || len(docs) != 2 {
		t.Errorf("%d documents, %v", len(docs), err)
	}
	for name, text := range map[string]string{
		"nothing": "", "only separators": "---\n---\n", "unknown field": good + "more: 1\n", "a Secret": "kind: Secret\napiVersion: v1\n",
		"keys not sorted": strings.Replace(good, "- a\n- b", "- b\n- a", 1), "too many": strings.Repeat("---\n"+good, maxDocuments+1),
		"deep": "a: " + strings.Repeat("[", 100_000), "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b]\n",
	} {
		if docs, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s is accepted: %+v", name, docs)
		}
	}
}

func TestRecipients(t *testing.T) {
	for _, text := range []string{"", "# none", "age1x", testIdentity(t).String(), "ssh-ed25519 AAAA"} {
		if list, err := Recipients(text); err == nil {
			t.Errorf("%.20q has %d recipients", text, len(list))
		} else if strings.Contains(err.Error(), "node") { // backups are sealed to the key of an office
			t.Error(err)
		}
	}
}

// TestBombs checks that a Secret that is large once it is decrypted or decoded is rejected.
func TestBombs(t *testing.T) {
	id := testIdentity(t)
	list, err := Recipients(id.Recipient().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"large": strings.Repeat(" ", maxSecret+1),
		"heavy": `{"kind":"Secret","data":{` + strings.Repeat(`"":"",`, maxSecret/7) + `"":""}}`,
		"deep":  strings.Repeat("[", 100_000),
	} {
		text, err := encrypt([]byte(data), list)
		if err != nil {
			t.Fatal(err)
		}
		d := Document{APIVersion: APIVersion, Kind: Kind, Metadata: Metadata{"wifi", "default"}, Sealed: text}
		if _, err := d.Open(id); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
