package pulls

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keyring"
)

// A Policy selects the images for which a pod must have verified credentials.
type Policy struct {
	mode      kubelet.ImagePullCredentialsVerificationPolicy
	allowlist []string // repositories; an entry that ends in / is a prefix
}

// NewPolicy returns the policy for imagePullCredentialsVerificationPolicy and
// preloadedImagesVerificationAllowlist of a KubeletConfiguration.
func NewPolicy(mode kubelet.ImagePullCredentialsVerificationPolicy, allowlist []string) (Policy, error) {
	switch mode {
	case kubelet.NeverVerify, kubelet.NeverVerifyPreloadedImages, kubelet.NeverVerifyAllowlistedImages, kubelet.AlwaysVerify:
	default:
		return Policy{}, fmt.Errorf(
			"imagePullCredentialsVerificationPolicy %q is not one of the four policies: see the configuration reference", mode)
	}
	p := Policy{mode: mode}
	for _, pattern := range allowlist {
		p.allowlist = append(p.allowlist, strings.TrimSuffix(pattern, "*"))
	}
	return p, nil
}

// needsVerification reports whether a pod needs verified credentials for an image of this repository.
func (p Policy) needsVerification(repository string, pulled bool) bool {
	switch p.mode {
	case kubelet.NeverVerify:
		return false
	case kubelet.NeverVerifyPreloadedImages:
		return pulled
	case kubelet.NeverVerifyAllowlistedImages:
		return !slices.ContainsFunc(p.allowlist, func(a string) bool {
			return a == repository || strings.HasSuffix(a, "/") && strings.HasPrefix(repository, a)
		})
	}
	return true
}

// maxSecrets is the maximum number of records of one image. Without this limit, new Secrets with the same credential
// could add any number of records.
const maxSecrets = 100

// authorizePod reports whether a pod with these sources of credentials may use an image with these records of pulls.
// The result update is a source for which a record must be stored, or nil. Such a source is a Secret whose content has
// changed, or a new Secret with the same credential. As in a kubelet, a change of a Secret's content does not revoke
// access.
func authorizePod(repository string, pulled []store.Pull, sources []store.PullSource) (ok bool, update *store.PullSource) {
	pulled = slices.DeleteFunc(slices.Clone(pulled), func(r store.Pull) bool { return r.Name != repository })
	if slices.ContainsFunc(pulled, func(r store.Pull) bool { return r.Source.Name == "" }) {
		return true, nil
	}
	for _, s := range sources {
		for _, r := range pulled {
			sameHash := len(s.Hash) > 0 && string(s.Hash) == string(r.Source.Hash)
			samePlace := s.Kind == r.Source.Kind && s.UID == r.Source.UID && s.Namespace == r.Source.Namespace && s.Name == r.Source.Name
			switch {
			case s.Kind == keyring.ServiceAccount:
				if samePlace && s.UID != "" {
					return true, nil
				}
			case sameHash && (samePlace || len(pulled) >= maxSecrets):
				return true, nil
			case sameHash, samePlace && s.UID != "" && len(pulled) < maxSecrets:
				return true, &s
			}
		}
	}
	return false, nil
}

// repositoryOf returns the full name of an image without tag and digest.
func repositoryOf(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	return named.Name(), nil
}
