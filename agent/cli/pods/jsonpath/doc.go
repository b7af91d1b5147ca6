// Package jsonpath finds a value of an object, for islet wait --for=jsonpath:
//
//	"{.status.phase}=Running" --> Parse --> Path --.
//	                                               +--> Find --> values --> Format --> text
//	object --> Decode --> maps and slices ---------'
package jsonpath
