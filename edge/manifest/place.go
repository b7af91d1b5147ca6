package manifest

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Place is an object of a manifest, with its position. The object need not be valid.
type Place struct {
	Kind      string
	Namespace string // "default" if the object has none
	Name      string
	NodeName  string // spec.nodeName
	Line      int    // its first line, counted from 1

	doc  *placedDocument
	base string // see Error
}

// A placedDocument is a document with a lineTree, which is built when a line is requested for the first time.
type placedDocument struct {
	document
	tree *lineTree
}

// Find returns the line of a field, such as spec.containers[0].image. If the manifest does not have the field, it returns the line of the
// innermost parent that the manifest has.
func (p *Place) Find(path string) int {
	if p.doc.tree == nil {
		p.doc.tree = newLineTree(p.doc.text)
	}
	if line := p.doc.tree.find(strings.Trim(p.base+"."+path, ".")); line > 0 {
		return line + p.doc.line
	}
	return p.Line
}

// A placedObject is the part of an object that Places reads.
type placedObject struct {
	metav1.TypeMeta `json:",inline"`

	Metadata meta `json:"metadata"`
	Spec     struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
}

// Places returns the objects of a manifest that can be read, also if other parts of the manifest are not valid.
func Places(data []byte) []*Place {
	docs, err := splitDocuments(data)
	if err != nil {
		return nil
	}
	var places []*Place
	objects := 0
	for _, d := range docs {
		raw, err := d.read(&objects)
		if err != nil {
			continue
		}
		doc := &placedDocument{document: d}
		var l list
		var head placedObject
		_ = decodeLenient(raw, &head) // wrong fields are omitted
		if !strings.HasSuffix(head.Kind, "List") {
			places = append(places, newPlace(head, doc, ""))
			continue
		}
		_ = decodeLenient(raw, &l)
		for i, item := range l.Items {
			var head placedObject
			_ = decodeLenient(item, &head)
			if head.Kind == "" {
				head.Kind = strings.TrimSuffix(l.Kind, "List")
			}
			places = append(places, newPlace(head, doc, fmt.Sprintf("items[%d]", i)))
		}
	}
	return places
}

func newPlace(o placedObject, doc *placedDocument, base string) *Place {
	p := &Place{Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, NodeName: o.Spec.NodeName, doc: doc, base: base}
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Line = p.Find("")
	return p
}
