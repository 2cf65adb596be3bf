package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.temporal.io/server/common/authorization"
)

const (
	// issuerIris is the issuer of tokens that clients sign themselves.
	issuerIris = "iris"
	// maxLife is the longest life of such a token.
	maxLife = 10 * time.Minute
	// clockSkew is how much the clocks of clients and servers may differ.
	clockSkew = time.Minute
	// delegationHeader is the header field of a token with the delegation that vouches for its key.
	delegationHeader = "iris_delegation"
)

// claims are what a token or a delegation says.
type claims struct {
	jwt.Claims
	Role string `json:"role"`
	Cnf  struct {
		Key jose.JSONWebKey `json:"jwk"`
	} `json:"cnf"`
}

// identify returns who makes a call with this token or certificate. It never fails: an unknown
// caller has a refusal.
func (p *policy) identify(info *authorization.AuthInfo, now time.Time) *caller {
	if info.AuthToken != "" {
		scheme, token, _ := strings.Cut(info.AuthToken, " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			return &caller{refusal: "the header authorization is not a bearer token"}
		}
		if found := p.verified.get(token, now); found != nil {
			return found
		}
		found, expires, err := p.verify(token, now)
		if err != nil {
			return &caller{refusal: "the token is not accepted: " + err.Error()}
		}
		p.verified.put(token, cached{found, expires})
		return found
	}
	if info.TLSSubject != nil {
		if c, ok := p.Certificates[info.TLSSubject.CommonName]; ok {
			found, err := newCaller(c.Name, c.Role, "")
			if err == nil {
				return found
			}
		}
		return &caller{refusal: fmt.Sprintf("the policy has no certificate %q", info.TLSSubject.CommonName)}
	}
	return &caller{refusal: "the call has no token"}
}

// verify returns the caller of a token and the time until which the token is valid.
func (p *policy) verify(token string, now time.Time) (*caller, time.Time, error) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA, jose.RS256, jose.ES256})
	if err != nil {
		return nil, time.Time{}, errors.New("it is not a signed JWT")
	}
	if len(parsed.Headers) != 1 {
		return nil, time.Time{}, errors.New("it has not one signature")
	}
	var unverified jwt.Claims
	if err := parsed.UnsafeClaimsWithoutVerification(&unverified); err != nil {
		return nil, time.Time{}, errors.New("its claims cannot be read")
	}
	if unverified.Issuer != issuerIris {
		return p.verifyForeign(parsed, unverified.Issuer, now)
	}
	header := parsed.Headers[0]
	if header.Algorithm != string(jose.EdDSA) {
		return nil, time.Time{}, fmt.Errorf("its algorithm is %s", header.Algorithm)
	}
	if slices.Contains(p.Revoked, header.KeyID) {
		return nil, time.Time{}, errors.New("its key is revoked")
	}
	var said claims
	if delegation, ok := header.ExtraHeaders[delegationHeader].(string); ok {
		found, err := p.delegated(parsed, header.KeyID, delegation, &said, now)
		if err != nil {
			return nil, time.Time{}, err
		}
		return found, said.Expiry.Time().Add(clockSkew), nil
	}
	known, ok := p.keys[header.KeyID]
	if !ok {
		return nil, time.Time{}, fmt.Errorf("its key %.12s is not in the policy", header.KeyID)
	}
	if err := p.own(parsed, known.key, &said, now); err != nil {
		return nil, time.Time{}, err
	}
	if said.Subject != known.owner.Name {
		return nil, time.Time{}, errors.New("its key is another's")
	}
	found, err := newCaller(known.owner.Name, known.owner.Role, header.KeyID)
	if err == nil && known.owner.Slice != "" {
		found.slice = known.owner.Slice
	}
	return found, said.Expiry.Time().Add(clockSkew), err
}

// own checks the signature and the times of a token that a client has signed itself.
func (p *policy) own(token *jwt.JSONWebToken, key any, said *claims, now time.Time) error {
	if err := p.signed(token, key, said, now); err != nil {
		return err
	}
	if said.Expiry == nil || said.IssuedAt == nil {
		return errors.New("it has no exp or no iat")
	}
	if said.Expiry.Time().Sub(said.IssuedAt.Time()) > maxLife {
		return fmt.Errorf("it is valid for more than %s", maxLife)
	}
	return nil
}

func (p *policy) signed(token *jwt.JSONWebToken, key any, said *claims, now time.Time) error {
	if err := token.Claims(key, said); err != nil {
		return errors.New("its signature is wrong")
	}
	if !slices.Contains(said.Audience, p.Cluster) {
		return fmt.Errorf("it is for cluster %s", strings.Join(said.Audience, " "))
	}
	err := said.ValidateWithLeeway(jwt.Expected{Issuer: issuerIris, Time: now}, clockSkew)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return errors.New("it has expired")
	case err != nil:
		return errors.New("it is not valid yet; compare the clocks")
	}
	return nil
}

// delegated returns the caller of a token whose key is not in the policy, but in a delegation that
// a key of the policy has signed.
func (p *policy) delegated(token *jwt.JSONWebToken, keyID, delegation string, said *claims, now time.Time) (*caller, error) {
	parsed, err := jwt.ParseSigned(delegation, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(parsed.Headers) != 1 {
		return nil, errors.New("its delegation is not a signed JWT")
	}
	signer, ok := p.keys[parsed.Headers[0].KeyID]
	if !ok {
		return nil, errors.New("its delegation is signed by a key that is not in the policy")
	}
	var given claims
	if err := p.signed(parsed, signer.key, &given, now); err != nil {
		return nil, fmt.Errorf("its delegation: %w", err)
	}
	id, err := thumbprint(&given.Cnf.Key)
	if err != nil || id != keyID || slices.Contains(p.Revoked, id) {
		return nil, errors.New("its delegation is for another key, or the key is revoked")
	}
	if err := p.own(token, given.Cnf.Key.Key, said, now); err != nil {
		return nil, err
	}
	if given.Expiry != nil && *given.Expiry < *said.Expiry {
		said.Expiry = given.Expiry
	}
	found, err := newCaller(said.Subject, given.Role, id)
	if err != nil {
		return nil, err
	}
	switch {
	case given.Role == roleHost && signer.owner.Role == roleControlPlane && given.Subject == "slice/"+found.slice:
		return found, nil
	case given.Role == roleJob && given.Subject == said.Subject && (signer.owner.Role == roleControlPlane || p.startsJobs(signer.owner, found.path[0])):
		return found, nil
	}
	return nil, errors.New("its delegation is for somebody else")
}

// startsJobs returns whether somebody is this user and may start jobs: nobody gives a right that they
// do not have.
func (p *policy) startsJobs(e *entry, user string) bool {
	g := p.Rules.grants[e.Role]
	return e.Name == user && g != nil && len(g.own[callStart]) > 0
}

// issuer is an OpenID Connect provider whose tokens name users of the policy.
type issuer struct {
	Issuer   string                 `json:"issuer"`
	JWKS     string                 `json:"jwks_uri"`
	Audience string                 `json:"audience"`
	Claim    string                 `json:"claim"`
	Users    map[string]certificate `json:"users"`

	mu      sync.Mutex
	keys    *jose.JSONWebKeySet
	fetched time.Time
}

const (
	// keysLast is how long the keys of a provider are used before they are fetched again.
	keysLast = time.Hour
	// keysPause is the least time between two fetches.
	keysPause   = time.Minute
	keysTimeout = 5 * time.Second
)

func (i *issuer) check() error {
	if i.Claim == "" {
		i.Claim = "email"
	}
	if i.Issuer == "" || i.Issuer == issuerIris || i.JWKS == "" || i.Audience == "" {
		return errors.New("an issuer needs issuer, jwks_uri and audience")
	}
	for value, user := range i.Users {
		c, err := newCaller(user.Name, user.Role, "")
		if err != nil {
			return fmt.Errorf("user %q of %s: %w", value, i.Issuer, err)
		}
		if !c.isPerson() || c.role == roleJob {
			return fmt.Errorf("user %q of %s has the role %s", value, i.Issuer, c.role)
		}
	}
	return nil
}

func (p *policy) verifyForeign(token *jwt.JSONWebToken, name string, now time.Time) (*caller, time.Time, error) {
	at := slices.IndexFunc(p.Issuers, func(i *issuer) bool { return i.Issuer == name })
	if at < 0 {
		return nil, time.Time{}, errors.New("its issuer is not in the policy")
	}
	i, header := p.Issuers[at], token.Headers[0]
	if header.Algorithm == string(jose.EdDSA) {
		return nil, time.Time{}, fmt.Errorf("its algorithm is %s", header.Algorithm)
	}
	key, err := i.key(header.KeyID, now)
	if err != nil {
		return nil, time.Time{}, err
	}
	var said jwt.Claims
	other := map[string]any{}
	if err := token.Claims(key, &said, &other); err != nil {
		return nil, time.Time{}, errors.New("its signature is wrong")
	}
	expected := jwt.Expected{Issuer: i.Issuer, AnyAudience: jwt.Audience{i.Audience}, Time: now}
	if err := said.ValidateWithLeeway(expected, clockSkew); err != nil || said.Expiry == nil {
		return nil, time.Time{}, errors.New("it has expired, or it is for others")
	}
	if verified, ok := other["email_verified"]; ok && i.Claim == "email" && verified != true {
		return nil, time.Time{}, errors.New("its email is not verified")
	}
	value, _ := other[i.Claim].(string)
	user, ok := i.Users[value]
	if !ok {
		return nil, time.Time{}, fmt.Errorf("its %s is not in the policy", i.Claim)
	}
	found, err := newCaller(user.Name, user.Role, header.KeyID)
	return found, said.Expiry.Time().Add(clockSkew), err
}

// key returns the provider's key with this id.
func (i *issuer) key(id string, now time.Time) (*jose.JSONWebKey, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	find := func() *jose.JSONWebKey {
		if i.keys != nil {
			for _, key := range i.keys.Key(id) {
				if key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
					return &key
				}
			}
		}
		return nil
	}
	found, age := find(), now.Sub(i.fetched)
	if (found == nil || age > keysLast) && age > keysPause {
		i.fetched = now
		keys, err := fetchKeys(i.JWKS)
		if err == nil {
			i.keys = keys
			found = find()
		} else if found == nil {
			return nil, fmt.Errorf("the keys of %s cannot be fetched", i.Issuer)
		}
	}
	if found == nil {
		return nil, errors.New("its key is unknown to its issuer")
	}
	return found, nil
}

func fetchKeys(url string) (*jose.JSONWebKeySet, error) {
	client := http.Client{Timeout: keysTimeout}
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	keys := &jose.JSONWebKeySet{}
	return keys, json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(keys)
}
