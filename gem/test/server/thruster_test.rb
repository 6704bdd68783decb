# frozen_string_literal: true

require_relative "../commands"

require "thruway/configuration/configuration_file"

# The environment variables of Thruster.
class ThrusterTest < Minitest::Test
  include Commands

  def settings(variables, file = "", bare: false)
    configuration = Thruway::Configuration.new
    lines = []
    thruster = Thruway::ThrusterVariables.new(configuration, variables, bare: bare)
    thruster.apply { |line| lines << line }
    path = write("config/file.rb", file)
    Thruway::ConfigurationFile.new(configuration).read(path)
    configuration.check
    [configuration, lines]
  end

  def test_each_variable_sets_what_it_sets_for_thruster
    variables = {
      "TLS_DOMAIN" => "a.example, b.example", "HTTP_PORT" => "8080", "HTTPS_PORT" => "8443",
      "ACME_DIRECTORY" => "https://ca.example/dir", "EAB_KID" => "kid",
      "EAB_HMAC_KEY" => "c2VjcmV0",
      "STORAGE_PATH" => "storage/keys", "CACHE_SIZE" => "67108864", "MAX_CACHE_ITEM_SIZE" => "1000",
      "MAX_REQUEST_BODY" => "0", "HTTP_IDLE_TIMEOUT" => "61", "HTTP_READ_TIMEOUT" => "31",
      "HTTP_WRITE_TIMEOUT" => "32", "GZIP_COMPRESSION_ENABLED" => "0", "LOG_REQUESTS" => "1"
    }
    configuration, lines = settings(variables.transform_keys { |name| "THRUSTER_#{name}" },
                                    "port 3000\nhead_timeout 5\n")
    assert_empty lines
    assert_equal %w[a.example b.example], configuration.acme_domains
    assert_equal %w[--acme-domain a.example --acme-domain b.example
                    --acme-directory https://ca.example/dir --acme-eab-kid kid
                    --acme-storage storage/keys --https-port 8443], configuration.acme_words
    assert_equal ["c2VjcmV0", 8080, [], 64 << 20, 1000, Thruway::Configuration::NO_LIMIT],
                 [configuration.acme_key, configuration.port, configuration.binds,
                  configuration.cache_bytes_max, configuration.cache_item_bytes_max,
                  configuration.body_bytes_max]
    assert_equal [61, 31, 31, 32, false, true],
                 [configuration.keep_alive_seconds, configuration.head_seconds,
                  configuration.body_seconds, configuration.write_seconds, configuration.compress,
                  configuration.log_requests]
  end

  def test_bare_names_count_only_where_the_file_says_so
    variables = { "TLS_DOMAIN" => "a.example", "DEBUG" => "1", "HTTP_PORT" => "8080" }
    configuration, lines = settings(variables)
    refute_predicate configuration, :acme?
    assert_equal [9292, []], [configuration.port, lines]
    configuration, lines = settings(variables.merge("THRUSTER_TLS_DOMAIN" => "b.example"),
                                    bare: true)
    assert_equal [["b.example"], 8080], [configuration.acme_domains, configuration.port]
    assert_equal ["variables of Thruster without effect: DEBUG (errors are logged without it)"],
                 lines
  end

  def test_ports_and_directories_of_certificates_need_a_domain_and_numbers_must_be_numbers
    configuration, = settings({ "THRUSTER_HTTPS_PORT" => "8443", "THRUSTER_STORAGE_PATH" => "a" })
    assert_empty configuration.acme_words
    error = assert_raises(Thruway::Failure) { settings({ "THRUSTER_HTTP_PORT" => "http" }) }
    assert_includes error.message, "HTTP_PORT is not a number: http"
  end
end
