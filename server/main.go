// Command server is Temporal's official server with Iris's access control.
//
// It has the command line of go.temporal.io/server/cmd/server. Without IRIS_ACCESS_POLICY it does
// the same as that server. With it, each call of a client is decided by the policy (access/).
package main

import (
	"fmt"
	"os"
	"path"
	"slices"
	_ "time/tzdata" // schedules need time zones, also on machines without them

	"github.com/urfave/cli/v2"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/log"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/mysql"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"

	"iris/server/access"
)

// policyVariable is the environment variable with the path of the access policy.
const policyVariable = "IRIS_ACCESS_POLICY"

func main() {
	app := cli.NewApp()
	app.Name = "temporal"
	app.Usage = "Temporal server with Iris's access control"
	app.Version = headers.ServerVersion
	app.Flags = []cli.Flag{
		&cli.StringFlag{Name: "root", Aliases: []string{"r"}, Value: ".", EnvVars: []string{config.EnvKeyRoot}},
		&cli.StringFlag{Name: "config", Aliases: []string{"c"}, Value: "config", EnvVars: []string{config.EnvKeyConfigDir}},
		&cli.StringFlag{Name: "env", Aliases: []string{"e"}, Value: "development", EnvVars: []string{config.EnvKeyEnvironment}},
		&cli.StringFlag{Name: "zone", Aliases: []string{"az"}, EnvVars: []string{config.EnvKeyAvailabilityZone, config.EnvKeyAvailabilityZoneTypo}},
		&cli.StringFlag{Name: "config-file", Usage: "path to the configuration file", EnvVars: []string{config.EnvKeyConfigFile}},
		&cli.BoolFlag{Name: "allow-no-auth", Usage: "allow no authorizer", EnvVars: []string{config.EnvKeyAllowNoAuth}},
	}
	app.Commands = []*cli.Command{{
		Name:  "start",
		Usage: "Start Temporal server",
		Flags: []cli.Flag{&cli.StringSliceFlag{
			Name: "service", Aliases: []string{"svc"}, Value: cli.NewStringSlice(temporal.DefaultServices...),
			Usage: "service(s) to start", EnvVars: []string{"TEMPORAL_SERVICES"},
		}},
		Action: start,
	}}
	_ = app.Run(os.Args)
}

func start(c *cli.Context) error {
	cfg, err := loadConfig(c)
	if err != nil {
		return cli.Exit(fmt.Sprintf("Unable to load configuration: %v.", err), 1)
	}
	logger := log.NewZapLogger(log.BuildZapLogger(cfg.Log))
	services := c.StringSlice("service")
	control, err := accessOptions(cfg, logger, c.Bool("allow-no-auth"))
	if err != nil {
		return cli.Exit(fmt.Sprintf("Unable to set up access control: %v.", err), 1)
	}
	internal := string(primitives.InternalFrontendService)
	if os.Getenv(policyVariable) != "" && slices.Contains(services, string(primitives.FrontendService)) && !slices.Contains(services, internal) {
		services = append(services, internal)
	}
	s, err := temporal.NewServer(append([]temporal.ServerOption{
		temporal.ForServices(services),
		temporal.WithConfig(cfg),
		temporal.WithLogger(logger),
		temporal.InterruptOn(temporal.InterruptCh()),
	}, control...)...)
	if err != nil {
		return cli.Exit(fmt.Sprintf("Unable to create server. Error: %v.", err), 1)
	}
	if err := s.Start(); err != nil {
		return cli.Exit(fmt.Sprintf("Unable to start server. Error: %v", err), 1)
	}
	return cli.Exit("All services are stopped.", 0)
}

func loadConfig(c *cli.Context) (*config.Config, error) {
	switch {
	case c.IsSet("config-file"):
		return config.Load(config.WithConfigFile(c.String("config-file")))
	case c.IsSet("config") || c.IsSet("env") || c.IsSet("zone"):
		return config.Load(
			config.WithEnv(c.String("env")),
			config.WithConfigDir(path.Join(c.String("root"), c.String("config"))),
			config.WithZone(c.String("zone")),
		)
	default:
		return config.Load(config.WithEmbedded())
	}
}

// accessOptions returns the options that decide who may do what: those of the official server, or
// with a policy those of Iris.
func accessOptions(cfg *config.Config, logger log.Logger, allowNoAuth bool) ([]temporal.ServerOption, error) {
	if path := os.Getenv(policyVariable); path != "" {
		// Temporal's own workers would be refused by the public frontend.
		if _, ok := cfg.Services[string(primitives.InternalFrontendService)]; !ok {
			return nil, fmt.Errorf("the configuration has no service %q, which %s needs", primitives.InternalFrontendService, policyVariable)
		}
		a, err := access.New(path, logger)
		if err != nil {
			return nil, err
		}
		settings, err := exposeErrors(cfg, logger)
		if err != nil {
			return nil, err
		}
		return []temporal.ServerOption{
			temporal.WithDynamicConfigClient(settings),
			temporal.WithLogger(access.WithShortRefusals(logger)),
			temporal.WithAuthorizer(a),
			temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return a }),
			temporal.WithChainedFrontendGrpcInterceptors(a.Intercept),
		}, nil
	}
	authorizer, err := authorization.GetAuthorizerFromConfig(&cfg.Global.Authorization)
	if err != nil {
		return nil, err
	}
	if authorization.IsNoopAuthorizer(authorizer) && !allowNoAuth {
		logger.Warn("Not using any authorizer and flag `--allow-no-auth` not detected.")
	}
	claims, err := authorization.GetClaimMapperFromConfig(&cfg.Global.Authorization, logger)
	if err != nil {
		return nil, err
	}
	audience, err := authorization.GetAudienceMapperFromConfig(&cfg.Global.Authorization)
	if err != nil {
		return nil, err
	}
	return []temporal.ServerOption{
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		temporal.WithAudienceGetter(func(*config.Config) authorization.JWTAudienceMapper { return audience }),
	}, nil
}

// withErrors is a dynamic configuration with which clients are told why a call is not allowed, and
// which cannot switch the authorizer off. Its errors contain nothing secret.
type withErrors struct{ dynamicconfig.Client }

func exposeErrors(cfg *config.Config, logger log.Logger) (dynamicconfig.Client, error) {
	if cfg.DynamicConfigClient == nil {
		return withErrors{dynamicconfig.NewNoopClient()}, nil
	}
	file, err := dynamicconfig.NewFileBasedClient(cfg.DynamicConfigClient, logger, temporal.InterruptCh())
	return withErrors{file}, err
}

func (c withErrors) GetValue(key dynamicconfig.Key) []dynamicconfig.ConstrainedValue {
	switch key {
	case dynamicconfig.ExposeAuthorizerErrors.Key():
		return []dynamicconfig.ConstrainedValue{{Value: true}}
	case dynamicconfig.DisableStreamingAuthorizer.Key():
		return []dynamicconfig.ConstrainedValue{{Value: false}}
	}
	return c.Client.GetValue(key)
}

func (c withErrors) Subscribe(update dynamicconfig.ClientUpdateFunc) (cancel func()) {
	if notifies, ok := c.Client.(dynamicconfig.NotifyingClient); ok {
		return notifies.Subscribe(update)
	}
	return func() {}
}
