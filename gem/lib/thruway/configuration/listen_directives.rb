# frozen_string_literal: true

require_relative "configuration"
require_relative "quantities"

module Thruway
  # The directives of a configuration file for the addresses of a server, of its control application
  # and of its metrics.
  module ListenDirectives
    # The options that `activate_control_app` takes.
    CONTROL_OPTIONS = %i[auth_token no_token umask data_only].freeze

    # The permissions that a umask can remove.
    PERMISSIONS = 0o777

    # Adds a port to the addresses of `bind`, on the default host unless `host` is given.
    def port(number, host = nil)
      @binds << [host || @default_host, Integer(number)]
    end

    def bind(address)
      @binds << address.to_s
    end

    # Adds an address that serves the metrics and the status page.
    def metrics(address)
      @metrics << address.to_s
    end

    # Adds a TLS address. Puma's options become parameters of the address. `cert` and `key` may be
    # Arrays.
    def ssl_bind(host, port, options = {})
      pairs = Array(options[:cert]).zip(Array(options[:key])).flat_map do |cert, key|
        [[:cert, cert], [:key, key]]
      end
      pairs += options.except(:cert, :key).to_a
      pairs = pairs.filter_map { |name, value| "#{name}=#{escape(value)}" unless value.nil? }
      bind("ssl://#{host}:#{port}?#{pairs.join("&")}")
    end

    # Obtains a certificate for each of these names from an authority that speaks ACME. Without
    # `bind`, the server then listens on ports 80 and 443; `port` has no effect.
    def acme_domain(*names)
      @settings[:acme_domains] = [*@settings[:acme_domains], *names.flatten.map(&:to_s)]
    end

    # Sets the addresses for messages of the authority.
    def acme_contact(*addresses)
      @settings[:acme_contacts] = addresses.flatten.map(&:to_s)
    end

    # Sets the challenges to answer, the preferred one first: `"http-01"`, `"tls-alpn-01"`.
    def acme_challenge(*kinds)
      @settings[:acme_challenges] = kinds.flatten.map(&:to_s)
    end

    # Binds a new account to an account outside of ACME, whose key `key_file` contains in Base64.
    def acme_external_account(kid, key_file)
      @settings.update(acme_eab_kid: kid.to_s, acme_eab_key_file: File.expand_path(key_file.to_s))
    end

    # Sets the port to which plain HTTP is redirected; `false` serves plain HTTP.
    def https_redirect(port)
      @settings[:https_redirect] = port ? Integer(port).to_s : "off"
    end

    # Makes browsers use only HTTPS for this host during the given number of seconds: a year by
    # default.
    def hsts(seconds = 31_536_000)
      @settings[:hsts_seconds] = seconds && Integer(Quantities.seconds(seconds))
    end

    def clear_binds!
      @binds.clear
    end

    def set_default_host(host)
      @default_host = host
    end

    def default_host
      @default_host || @configuration.host
    end

    # Also listens on the sockets of systemd. With `"only"`, listens on no other sockets.
    def bind_to_activated_sockets(answer = true)
      @settings[:activated_sockets] = answer.to_s == "only" ? :only : answer
    end

    # Sets the address of the control application for `thruway ctl` and pumactl, and the token that
    # both must send. Unknown options are errors, because their purpose could be to restrict access.
    def activate_control_app(url = "auto", options = {})
      url = url.to_s
      raise ArgumentError, "the control application has no TLS: #{url}" if url.start_with?("ssl:")

      unknown = options.keys - CONTROL_OPTIONS
      raise ArgumentError, "activate_control_app has no option #{unknown.first}:" if unknown.any?

      @settings[:control] = { uri: control_url(url, options[:umask]), token: control_token(options),
                              data_only: options[:data_only] }
      @settings[:counts] = true
    end

    private

    def control_token(options)
      return if options[:no_token]

      token = options[:auth_token]&.to_s || random_digits(16)
      # An empty token would match every request.
      raise ArgumentError, "auth_token: is empty; no_token: true requires none" if token.empty?

      token
    end

    def control_url(url, umask)
      mask = umask ? Integer(umask) : 0
      raise ArgumentError, "umask: must be 0 to 0777, not #{umask}" unless
        (0..PERMISSIONS).cover?(mask)
      return temporary_url(0o600 & ~mask) if url == "auto"
      return url unless umask

      raise ArgumentError, "umask: needs a unix socket without mode=, not #{url}" if
        !url.start_with?("unix:") || url.match?(/[?&]mode=/)

      "#{url}#{url.include?("?") ? "&" : "?"}umask=#{format("0%o", mask)}"
    end

    # The URL of a new socket that only this user may open.
    def temporary_url(mode)
      name = "thruway-#{Process.pid}-#{random_digits(4)}.sock"
      "unix://#{File.join(temporary_folder, name)}?mode=#{format("%04o", mode)}"
    end

    # The folder that `Dir.tmpdir` would return. The library `tmpdir` is not used, because it may be
    # a gem of the application's bundle.
    def temporary_folder
      named = ENV.values_at("TMPDIR", "TMP", "TEMP").compact
      named.find { |folder| usable?(folder) } || "/tmp"
    end

    def usable?(folder)
      stat = File.stat(folder)
      stat.directory? && stat.writable? && (!stat.world_writable? || stat.sticky?)
    rescue SystemCallError
      false
    end

    def random_digits(bytes)
      Random.urandom(bytes).unpack1("H*")
    end

    # Escapes the characters that have a meaning in an address.
    def escape(value)
      value.to_s.gsub(/[%&=?# ]/) { |sign| format("%%%02X", sign.ord) }
    end

    def address_of(bind)
      return bind unless bind.is_a?(Array)

      host, number = bind
      host ||= @configuration.host
      host = "[#{host}]" if host.include?(":") && !host.start_with?("[")
      "tcp://#{host}:#{number}"
    end
  end
end
