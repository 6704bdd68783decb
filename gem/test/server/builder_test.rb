# frozen_string_literal: true

require_relative "../commands"

# The choice of the builder that evaluates a `config.ru`.
class BuilderTest < Minitest::Test
  include Commands

  def test_a_patched_builder_of_rack_s_is_called
    write("config.ru", <<~'RUBY')
      require "rack"
      module Agent
        def to_app = ->(env) { super().call(env).tap { |_, fields, _| fields["x-agent"] = "here" } }
      end
      Rack::Builder.prepend(Agent)
      class Rack::Builder
        def greet(word, mark: "?", &block) = run(->(_) { [200, {}, [word + mark + block.call]] })
      end
      use Rack::Head
      map("/map") { greet("mapped") { "" } }
      greet("hello", mark: "!") { "." }
    RUBY
    start
    response = get
    assert_equal ["hello!.", "here"], [response.body, response["x-agent"]]
    assert_equal "mapped?", get("/map").body
  end

  def test_rack_is_not_loaded_for_a_file_that_does_without_it
    write("config.ru", <<~'RUBY')
      rack = -> { $LOADED_FEATURES.grep(%r{/rack(/builder)?\.rb\z}).size }
      map("/map") { run { |_| [200, {}, ["mapped"]] } }
      run { |_| [200, {}, [rack.call.to_s]] }
    RUBY
    start
    assert_equal "mapped", get("/map").body
    write("config.ru", "run ->(_) { [200, {}, [$LOADED_FEATURES.grep(%r{/rack\\.rb}).size.to_s]] }")
    start
    assert_equal "0", get.body
  end

  def test_a_file_may_name_its_encoding
    text = "# encoding: iso-8859-1\n" \
           "run ->(_) { [200, {}, ['caf\xE9'.encode('UTF-8')]] }\n__END__\n\xE9"
    write("config.ru", text.b)
    start
    assert_equal "café", get.body.force_encoding("UTF-8")
  end

  def test_an_unknown_word_is_named
    ["require 'rack'\n", ""].each do |before|
      write("config.ru", "#{before}rum ->(_) {}")
      assert_match(/NameError|NoMethodError/, refusal(@folder, "-p", "0"))
      assert_includes refusal(@folder, "-p", "0"), "rum"
    end
  end
end
