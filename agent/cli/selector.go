package cli

import (
	"slices"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selectorFlag is the flag -l.
type selectorFlag struct{ text string }

func (s *selectorFlag) declareSelector(flags *pflag.FlagSet) {
	flags.StringVarP(&s.text, "selector", "l", "", "only pods with these labels, such as app=web,tier!=test or 'app in (a,b)'")
}

// parseSelector parses the flag. It returns nil if the flag is not set, so every pod matches.
func (s *selectorFlag) parseSelector() (labels.Selector, error) {
	if s.text == "" {
		return nil, nil
	}
	selector, err := labels.Parse(s.text)
	if err != nil {
		return nil, usage("selector %q: %v", s.text, err)
	}
	return selector, nil
}

// selectPods returns the pods that match the flag.
func (s *selectorFlag) selectPods(pods []v1.Pod) ([]v1.Pod, error) {
	selector, err := s.parseSelector()
	if err != nil || selector == nil {
		return pods, err
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return !selector.Matches(labels.Set(p.Labels)) }), nil
}
