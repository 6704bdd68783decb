# frozen_string_literal: true

require_relative "../commands"
require_relative "../ports"

require "etc"
require "psych"

# The files in `deploy`, as far as one machine can try them: with real proxies, and a real server.
class DeployTest < Minitest::Test
  include Commands
  include Ports

  DEPLOY = File.expand_path("../../../deploy", __dir__)

  WAITING = <<~'RUBY'
    run ->(env) {
      sleep 0.01 until File.exist?("go") if env["PATH_INFO"] == "/wait"
      [200, {}, [Process.pid.to_s]]
    }
  RUBY

  # A server with the settings of the files, except for its ports.
  Site = Struct.new(:pid, :port, :metrics, :agent)

  def read(name) = File.read(File.join(DEPLOY, name))

  def start_site(variables = {})
    write("config.ru", WAITING)
    write("config/thruway.rb", read("config/thruway.rb"))
    site = Site.new(nil, free_port, free_port, free_port)
    addresses = { "THRUWAY_BIND" => site.port, "THRUWAY_METRICS" => site.metrics,
                  "THRUWAY_AGENT_CHECK" => site.agent }
    addresses.each { |name, port| ENV[name] = "tcp://127.0.0.1:#{port}" }
    variables.each { |name, value| ENV[name] = value }
    site.pid = start(port: [])
    site
  ensure
    [*addresses&.keys, *variables.keys].each { |name| ENV.delete(name) }
  end

  # Sends a request by address, as a probe or a scraper does.
  def ask(port, path)
    client = Client.new(TCPSocket.new("127.0.0.1", port))
    client.send("GET #{path} HTTP/1.1\r\nHost: 127.0.0.1:#{port}\r\n\r\n")
    client.response
  end

  def status(port, path) = ask(port, path).status

  def documents(name) = Psych.load_stream(read(name))

  def test_probes_of_kubernetes_ask_what_the_server_serves
    site = start_site("WEB_CONCURRENCY" => "1", "THRUWAY_DRAIN_DELAY" => "0")
    deployment, service, = documents("kubernetes/shop.yaml")
    pod = deployment.dig("spec", "template", "spec")
    container = pod["containers"].first
    ports = container["ports"].to_h { |port| [port["name"], port["containerPort"]] }
    assert_equal({ "http" => 9292, "metrics" => 9394 }, ports)
    real = { "http" => site.port, "metrics" => site.metrics }
    %w[startupProbe readinessProbe livenessProbe].each do |name|
      probe = container.dig(name, "httpGet")
      assert_equal 200, status(real.fetch(probe["port"]), probe["path"]), name
    end
    scraped = deployment.dig("spec", "template", "metadata", "annotations")
    assert_equal "9394", scraped["prometheus.io/port"]
    assert_equal 200, status(site.metrics, scraped["prometheus.io/path"])
    assert_equal "http", service.dig("spec", "ports", 0, "targetPort")
    # preStop, drain_delay and force_shutdown_after of the configuration.
    assert_operator pod["terminationGracePeriodSeconds"], :>=, 3 + 10 + 25
    assert_predicate stop(site.pid), :success?
  end

  def test_keda_asks_for_a_metric_that_there_is
    site = start_site("WEB_CONCURRENCY" => "1", "THRUWAY_DRAIN_DELAY" => "0")
    query = documents("kubernetes/keda.yaml").first.dig("spec", "triggers", 0, "metadata", "query")
    name = query[/thruway_\w+/]
    text = ask(site.metrics, "/metrics").body
    assert_includes text, "#{name}{le="
    assert_predicate stop(site.pid), :success?
  end

  def test_ports_and_paths_are_the_same_in_all_files
    envoy = documents("envoy/envoy.yaml").first.dig("static_resources", "clusters", 0)
    endpoints = envoy.dig("load_assignment", "endpoints", 0, "lb_endpoints")
    ports = endpoints.map { |one| one.dig("endpoint", "address", "socket_address", "port_value") }
    assert_equal [9292], ports.uniq
    kamal = documents("kamal/deploy.yml").first
    assert_equal 9292, kamal.dig("proxy", "app_port")
    paths = [envoy.dig("health_checks", 0, "http_health_check", "path"),
             kamal.dig("proxy", "healthcheck", "path"),
             read("caddy/Caddyfile")[/health_uri (\S+)/, 1],
             read("haproxy/haproxy.cfg")[/httpchk GET (\S+)/, 1],
             read("config/thruway.rb")[/health_check "(.*)"/, 1]]
    assert_equal ["/up"], paths.uniq
    dockerfile = kamal.dig("builder", "dockerfile")
    assert_path_exists File.join(DEPLOY, "..", dockerfile)
    assert_match(/EXPOSE 9292 9394$/, read("docker/Dockerfile"))
  end

  # Starts HAProxy with its file in front of these servers.
  def balance(sites, algorithm = "leastconn")
    front = free_port
    text = read("haproxy/haproxy.cfg").sub("bind :80", "bind 127.0.0.1:#{front}")
    kept = text.lines.grep_v(/^  server /).join.gsub("inter 1s", "inter 200ms")
    kept = kept.sub("agent-port 9395 ", "").sub("balance leastconn", "balance #{algorithm}")
    servers = sites.each_with_index.map do |site, index|
      "  server s#{index} 127.0.0.1:#{site.port} agent-port #{site.agent}\n"
    end
    path = write("haproxy.cfg", kept + servers.join)
    assert system("haproxy", "-c", "-q", "-f", path), "the file is wrong"
    @pids << spawn("haproxy", "-db", "-f", path, out: File::NULL, err: File::NULL)
    @address = "http://127.0.0.1:#{front}"
    eventually { served?(sites.size) }
  end

  # Whether `count` servers have responded lately.
  def served?(count)
    (Array.new(3 * count) { get.body }.uniq & Array.new(3 * count) { get.body }).size >= count
  rescue SystemCallError, EOFError
    false
  end

  def test_haproxy_loses_no_request_when_a_server_stops_and_another_is_killed
    skip "haproxy is not installed" unless system("haproxy", "-v", out: File::NULL)
    variables = { "WEB_CONCURRENCY" => "0", "THRUWAY_DRAIN_DELAY" => "1" }
    sites = Array.new(3) { start_site(variables) }
    balance(sites)
    statuses = Queue.new
    goes_on = true
    clients = Array.new(6) do
      Thread.new { statuses << (get.status rescue $ERROR_INFO) while goes_on }
    end
    eventually { statuses.size > 50 }
    assert_predicate stop(sites[0].pid), :success?
    Process.kill("KILL", sites[1].pid)
    before = statuses.size
    eventually { statuses.size > before + 100 }
    goes_on = false
    clients.each(&:join)
    assert_equal [200], Array.new(statuses.size) { statuses.pop }.uniq
    assert_predicate stop(sites[2].pid), :success?
  end

  def test_haproxy_sends_less_to_a_busy_server
    skip "haproxy is not installed" unless system("haproxy", "-v", out: File::NULL)
    sites = Array.new(2) { start_site("WEB_CONCURRENCY" => "0", "THRUWAY_DRAIN_DELAY" => "0") }
    balance(sites, "roundrobin")
    # Four of five threads.
    held = Array.new(4) { Client.new(TCPSocket.new("127.0.0.1", sites[0].port)) }
    held.each { |client| client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n") }
    # Without the load signal, the server would get 12 of 24 requests.
    eventually { Array.new(24) { get.body.to_i }.count(sites[0].pid) <= 7 }
    write("go", "")
    held.each { |client| assert_equal 200, client.response.status }
    sites.each { |site| assert_predicate stop(site.pid), :success? }
  end

  def test_nginx_passes_requests_to_its_unix_socket
    skip "nginx is not installed" unless system("nginx", "-v", err: File::NULL)
    socket = File.join(@folder, "web.sock")
    write("config.ru", <<~'RUBY')
      run ->(env) { [200, {}, [env.values_at("REMOTE_ADDR", "rack.url_scheme").join(" ")]] }
    RUBY
    write("config/thruway.rb", "set_remote_address :x_forwarded_for\n")
    pid = start("-w", "1", "-b", "unix://#{socket}", port: [])
    front = free_port
    site = read("nginx/shop.conf").sub("/run/shop/web.sock", socket)
                                  .sub("listen 80", "listen 127.0.0.1:#{front}")
    paths = %w[client_body proxy fastcgi uwsgi scgi].map { |name| "#{name}_temp_path #{name};" }
    path = write("nginx.conf", <<~TEXT)
      daemon off;
      user #{Etc.getpwuid.name};
      pid #{@folder}/nginx.pid;
      error_log #{@folder}/nginx.log;
      events {}
      http {
        access_log off;
        #{paths.join(" ")}
        #{site}
      }
    TEXT
    nginx = spawn("nginx", "-p", @folder, "-c", path, err: File::NULL)
    @pids << nginx
    eventually do
      Client.new(TCPSocket.new("127.0.0.1", front)).request.body == "127.0.0.1 http"
    rescue SystemCallError
      false
    end
    stop(nginx, "QUIT")
    assert_predicate stop(pid), :success?
  end
end
