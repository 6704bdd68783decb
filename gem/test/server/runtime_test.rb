# frozen_string_literal: true

require_relative "../commands"

require "thruway/application/runtime"

# Ruby's own settings when the application is loaded.
class RuntimeTest < Minitest::Test
  include Commands

  # A stand-in for a Ruby with YJIT and with Process.warmup. Each records its calls.
  APPLICATION = <<~'RUBY'
    ASKED = []
    if ENV["YJIT"]
      class RubyVM
        remove_const(:YJIT) if const_defined?(:YJIT)
        module YJIT
          def self.enabled? = ASKED.include?("yjit")
          def self.enable = ASKED << "yjit"
        end
      end
    end
    def Process.warmup = ASKED << "warmup #{Process.pid}"
    if ENV["RAILS_YJIT"]
      module Rails
        def self.application = Struct.new(:config).new(Struct.new(:yjit).new(false))
      end
    end
    run ->(_) { [200, {}, [ASKED.join(",")]] }
  RUBY

  # Returns the calls before the first request.
  def asked(*arguments, settings: "", **variables)
    write("config.ru", APPLICATION)
    write("config/puma.rb", settings)
    names = variables.transform_keys(&:to_s)
    before = ENV.to_h.slice(*names.keys)
    names.each { |name, value| ENV[name] = value }
    @master = start(*arguments)
    get.body.split(",")
  ensure
    names.each_key { |name| ENV[name] = before[name] }
    stop(@master) if @master
  end

  def test_yjit_is_turned_on_where_nothing_else_decides
    assert_equal ["yjit"], asked("-e", "production", YJIT: "1")
    assert_equal [], asked("-e", "production")
  end

  def test_yjit_stays_off_where_code_is_changed
    %w[development test].each { |name| assert_equal [], asked("-e", name, YJIT: "1") }
  end

  def test_what_ruby_or_rails_decides_about_yjit_holds
    production = ["-e", "production"]
    assert_equal [], asked(*production, YJIT: "1", RAILS_YJIT: "1")
    assert_equal [], asked(*production, YJIT: "1", RUBY_YJIT_ENABLE: "0")
  end

  def test_the_configuration_goes_before_all
    on = { settings: "yjit", YJIT: "1", RAILS_YJIT: "1" }
    assert_equal ["yjit"], asked("-e", "development", **on)
    assert_equal [], asked("-e", "production", settings: "yjit false", YJIT: "1")
  end

  def test_the_heap_is_made_ready_once_before_workers_are_forked
    made = asked("-w", "2")
    assert_equal ["warmup #{@master}"], made
  end

  def test_nothing_is_made_ready_without_a_fork_or_a_loaded_application
    assert_equal [], asked("-w", "0")
    assert_equal [], asked("-w", "1", settings: "preload_app! false")
    assert_equal [], asked("-w", "1", settings: "warm_up false")
  end

  def test_before_ruby_3_3_the_collections_make_objects_old
    write("config.ru", <<~'RUBY')
      Process.singleton_class.undef_method(:warmup) if Process.respond_to?(:warmup)
      COUNT = GC.stat(:major_gc_count)
      run ->(_) { [200, {}, [(GC.stat(:major_gc_count) - COUNT).to_s]] }
    RUBY
    start("-w", "1")
    assert_operator Integer(get.body), :>=, Thruway::Runtime::OLD_AGE
  end
end
