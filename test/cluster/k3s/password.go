package k3s

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/crypto/scrypt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hashForm is the form of a password's hash: version, salt, the binary logarithm of N, r, p and the key. k3s
// pkg/authenticator/hash/scrypt.go.
const hashForm = "$%d:%x:%d:%d:%d:%s"

// hashPassword returns the hash of a node's password.
func hashPassword(password string) (string, error) {
	salt := make([]byte, 8)
	_, _ = rand.Read(salt) // it never fails
	key, err := scrypt.Key([]byte(password), salt, 1<<15, 8, 1, 64)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(hashForm, 1, salt, 15, 8, 1, base64.RawStdEncoding.EncodeToString(key)), nil
}

// checkPassword compares a password with a hash.
func checkPassword(hash, password string) error {
	var version, logN uint
	var r, p int
	var salt []byte
	var encoded string
	if _, err := fmt.Sscanf(hash, hashForm, &version, &salt, &logN, &r, &p, &encoded); err != nil {
		return err
	}
	if version != 1 {
		return fmt.Errorf("hash version %d", version)
	}
	want, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	key, err := scrypt.Key([]byte(password), salt, 1<<logN, r, p, len(want))
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(key, want) != 1 {
		return errors.New("hash does not match")
	}
	return nil
}

// errRejected marks a password that does not match, and also a Secret that cannot be read.
var errRejected = errors.New("unable to verify password for node")

// passwordSecret returns the name of the Secret with the hash of a node's password.
func passwordSecret(node string) string { return strings.ToLower(node + ".node-password.k3s") }

// checkNode returns the name of the node that requests a certificate, or the status of the refusal. The name and the password are in
// headers. A request with a node's certificate must be for this node, which must exist. The first password of a name is stored, and later
// ones must match. If the Secret cannot be created, the node is admitted. k3s pkg/nodepassword/validate.go and nodepassword.go.
func (s *Server) checkNode(r *http.Request) (node string, status int, err error) {
	u := userOf(r)
	node, password := r.Header.Get("k3s-Node-Name"), r.Header.Get("k3s-Node-Password")
	if node == "" {
		return "", http.StatusBadRequest, errors.New("node name not set")
	}
	if password == "" {
		return "", http.StatusBadRequest, errors.New("node password not set")
	}
	node = strings.ToLower(node)
	certified, isNode := strings.CutPrefix(u.name, nodePrefix)
	isNode = isNode && u.in(nodesGroup)
	if isNode && certified != node {
		return "", http.StatusBadRequest, errors.New("header node name does not match auth node name")
	}
	if !s.coreReady() {
		return "", http.StatusServiceUnavailable, errors.New("runtime core not ready")
	}
	if isNode {
		if _, err := s.c.Client.CoreV1().Nodes().Get(r.Context(), node, metav1.GetOptions{}); err != nil {
			return "", http.StatusUnauthorized, fmt.Errorf("unable to verify node identity: %w", err)
		}
	}
	if err := s.ensurePassword(r.Context(), node, password); errors.Is(err, errRejected) {
		return "", http.StatusForbidden, err
	}
	return node, http.StatusOK, nil
}

// ensurePassword compares the password with the node's Secret, or creates the Secret.
func (s *Server) ensurePassword(ctx context.Context, node, password string) error {
	secrets := s.c.Client.CoreV1().Secrets(metav1.NamespaceSystem)
	verify := func() error {
		secret, err := secrets.Get(ctx, passwordSecret(node), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			err = checkPassword(string(secret.Data["hash"]), password)
		}
		if err != nil {
			return fmt.Errorf("%w %s: %w", errRejected, node, err)
		}
		return nil
	}
	if err := verify(); !apierrors.IsNotFound(err) {
		return err
	}
	hash, err := hashPassword(password)
	if err != nil {
		return err
	}
	immutable := true
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: passwordSecret(node)},
		Type:       "k3s.cattle.io/node-password",
		Immutable:  &immutable,
		Data:       map[string][]byte{"hash": []byte(hash)},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return verify()
	}
	return err
}

// ownPassword makes the Node the owner of its password's Secret, so that the Secret is deleted with the Node and the name is free again.
// k3s pkg/nodepassword/controller.go, onChangeNode.
func (s *Server) ownPassword(ctx context.Context, node *corev1.Node) error {
	secrets := s.c.Client.CoreV1().Secrets(metav1.NamespaceSystem)
	secret, err := secrets.Get(ctx, passwordSecret(node.Name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, o := range secret.OwnerReferences {
		if o.UID == node.UID {
			return nil
		}
	}
	secret.OwnerReferences = append(secret.OwnerReferences,
		metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
	_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	return err
}
