package bundle

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/islet-edge/islet/internal/signed"
)

// MaxState is the maximum size of a signed state, in bytes.
const MaxState = 1 << 20

// A SignedState is a JSON document that a node has signed. The signature covers the document without insignificant whitespace, so a program
// may format it again.
type SignedState struct {
	State     json.RawMessage `json:"state"`
	Key       string          `json:"key"`       // of the node, as "islet-ed25519 BASE64"
	Signature string          `json:"signature"` // in base64
}

// statePurpose is signed before the document, so that the signature cannot be used for another kind of document.
const statePurpose = "islet bundle state 1\n"

// SignState signs a document.
func SignState(document any, key ed25519.PrivateKey) (*SignedState, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	sum := ed25519.Sign(key, append([]byte(statePurpose), text...))
	return &SignedState{text, signed.PublicKey(key).String(), base64.StdEncoding.EncodeToString(sum)}, nil
}

// Verify returns the key of the node that has signed the state. The caller decides whose key it is.
func (s *SignedState) Verify() (signed.Key, error) {
	key, err := signed.ParseKey(s.Key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	text := bytes.NewBufferString(statePurpose)
	if err := json.Compact(text, s.State); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	sum, err := base64.StdEncoding.DecodeString(s.Signature)
	if err != nil || !ed25519.Verify(ed25519.PublicKey(key), text.Bytes(), sum) {
		return nil, errors.New("the signature is wrong: the state was changed or is damaged")
	}
	return key, nil
}
