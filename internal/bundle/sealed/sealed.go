package sealed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/inputweight"
)

const (
	// APIVersion is the apiVersion of each document of a sealed file.
	APIVersion = "islet.dev/v1alpha1"
	// Kind is the kind of each document of a sealed file.
	Kind = "SealedSecret"

	maxDocuments  = 200
	maxRecipients = 1000
	maxSecret     = 2 << 20 // decrypted; a Secret of an API server has 1 MiB of data at most
	maxWeight     = 16 << 20
)

// A Secret is a Secret as JSON, with the fields that a sealed file shows.
type Secret struct {
	Namespace, Name, Type string
	Keys                  []string // sorted
	JSON                  []byte
}

// A Document is a document of a sealed file.
type Document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Type       string   `json:"type,omitempty"`
	Keys       []string `json:"keys"`                 // sorted
	Recipients []string `json:"recipients,omitempty"` // the nodes that can open it; only for islet bundle verify
	Sealed     string   `json:"sealed"`
}

// Metadata identifies the Secret.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Recipients parses public keys, such as "age1...", of nodes or of the office: one per line, with empty lines and comments that begin
// with #.
func Recipients(text string) (list []age.Recipient, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := age.ParseX25519Recipient(line)
		if err != nil {
			return nil, fmt.Errorf("%.80q is not a public key (age1...): %w", line, err)
		}
		if list = append(list, r); len(list) > maxRecipients {
			return nil, fmt.Errorf("more than %d recipients", maxRecipients)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no recipients")
	}
	return list, nil
}

// Seal returns a sealed file. Each call returns other bytes for the same Secrets.
func Seal(secrets []Secret, recipients []age.Recipient) ([]byte, error) {
	var out bytes.Buffer
	for _, s := range secrets {
		if len(s.JSON) > maxSecret {
			return nil, fmt.Errorf("the Secret %s/%s has more than %d bytes", s.Namespace, s.Name, maxSecret)
		}
		text, err := encrypt(s.JSON, recipients)
		if err != nil {
			return nil, err
		}
		doc, err := yaml.Marshal(Document{
			APIVersion: APIVersion, Kind: Kind, Metadata: Metadata{s.Name, s.Namespace}, Type: s.Type, Keys: s.Keys,
			Recipients: names(recipients), Sealed: text,
		})
		if err != nil {
			return nil, err
		}
		if out.Len() > 0 {
			out.WriteString(separator)
		}
		out.Write(doc)
	}
	return out.Bytes(), nil
}

// names returns the texts of recipients.
func names(recipients []age.Recipient) (texts []string) {
	for _, r := range recipients {
		if s, ok := r.(fmt.Stringer); ok {
			texts = append(texts, s.String())
		}
	}
	return texts
}

func encrypt(data []byte, recipients []age.Recipient) (string, error) {
	var text bytes.Buffer
	lines := armor.NewWriter(&text)
	w, err := age.Encrypt(lines, recipients...)
	if err != nil {
		return "", err
	}
	_, err = w.Write(data)
	if err := errors.Join(err, w.Close(), lines.Close()); err != nil {
		return "", err
	}
	return text.String(), nil
}

const separator = "---\n"

// Parse returns the documents of a sealed file, without decrypting them.
func Parse(data []byte) (docs []Document, err error) {
	if err := inputweight.YAML(data, maxWeight); err != nil {
		return nil, err
	}
	for i, text := range split(string(data)) {
		if i == maxDocuments {
			return nil, fmt.Errorf("more than %d documents", maxDocuments)
		}
		var d Document
		if err := yaml.UnmarshalStrict([]byte(text), &d); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if err := d.validate(); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		docs = append(docs, d)
	}
	if len(docs) == 0 {
		return nil, errors.New("it has no documents")
	}
	return docs, nil
}

// split returns the documents of a YAML file that are not empty. A line of three dashes is between two documents. Seal writes no such line
// inside of a document.
func split(text string) (docs []string) {
	var doc strings.Builder
	end := func() {
		if strings.TrimSpace(doc.String()) != "" {
			docs = append(docs, doc.String())
		}
		doc.Reset()
	}
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \r\n") == "---" {
			end()
			continue
		}
		doc.WriteString(line)
	}
	end()
	return docs
}

func (d *Document) validate() error {
	switch {
	case d.APIVersion != APIVersion || d.Kind != Kind:
		return fmt.Errorf("it is not %s of %s", Kind, APIVersion)
	case d.Metadata.Name == "" || d.Metadata.Namespace == "":
		return errors.New("it has no name or no namespace")
	case !slices.IsSorted(d.Keys) || len(slices.Compact(slices.Clone(d.Keys))) != len(d.Keys):
		return errors.New("its keys are not sorted, or one is there twice")
	case d.Sealed == "":
		return errors.New("it is empty")
	}
	return nil
}

// Open decrypts a document. The error does not contain decrypted data.
func (d *Document) Open(identities ...age.Identity) (*Secret, error) {
	name := d.Metadata.Namespace + "/" + d.Metadata.Name
	r, err := age.Decrypt(armor.NewReader(strings.NewReader(d.Sealed)), identities...)
	var other *age.NoIdentityMatchError
	switch {
	case errors.As(err, &other):
		return nil, fmt.Errorf("the Secret %s is not sealed for this node: islet key recipient prints the key of this node; "+
			"seal the Secret with this key (islet bundle seal --to)", name)
	case err != nil:
		return nil, fmt.Errorf("the sealed Secret %s is damaged: %w", name, err)
	}
	data, err := io.ReadAll(io.LimitReader(r, maxSecret+1))
	if err == nil && len(data) > maxSecret {
		err = fmt.Errorf("it has more than %d bytes", maxSecret)
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt the Secret %s: %w", name, err)
	}
	s, err := ReadSecret(data)
	if err != nil {
		return nil, fmt.Errorf("the sealed Secret %s: %w", name, err)
	}
	if s.Name != d.Metadata.Name || s.Namespace != d.Metadata.Namespace || s.Type != d.Type || !slices.Equal(s.Keys, d.Keys) {
		return nil, fmt.Errorf("the sealed Secret %s has another name, type or keys than it shows", name)
	}
	return s, nil
}

// ReadSecret returns a Secret for its JSON.
func ReadSecret(data []byte) (*Secret, error) {
	var v struct {
		Kind     string
		Metadata Metadata
		Type     string
		Data     map[string][]byte
	}
	if err := inputweight.JSON(data, &v, maxWeight); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, errors.New("it is not the JSON of a Secret") // the error of the decoder may quote the data
	}
	if v.Kind != "Secret" || v.Metadata.Name == "" || v.Metadata.Namespace == "" {
		return nil, errors.New("it is not a Secret with a name and a namespace")
	}
	return &Secret{v.Metadata.Namespace, v.Metadata.Name, v.Type, slices.Sorted(maps.Keys(v.Data)), data}, nil
}
